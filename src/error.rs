//! The one error type: what kind of trouble it is, what happened, and what the reader should do about it.
//!
//! Kinds are few and named by what a caller must do, so that one `match` ([`ErrorKind::directive`]) decides between
//! trying again, refusing the input and calling a person.

use std::fmt;

use crate::secret::presentable;

mod cause;

pub use cause::causes;

/// What kind of trouble an [`Error`] is. A kind exists only where some caller acts differently on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The input (a file, a contract, an argument) is wrong and will stay wrong.
    Invalid,
    /// Something that was named does not exist.
    NotFound,
    /// Somebody else was quicker: read again and decide anew.
    Conflict,
    /// A service or disk did not answer or refused for the moment.
    Unavailable,
    /// Credentials or permissions are missing.
    Denied,
    /// Stored state contradicts itself; a person must look before anything is written.
    Corrupt,
    /// A fault of this program.
    Internal,
}

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directive {
    /// Try again later; nothing is wrong with the input.
    Retry,
    /// Refuse the input, record why, go on with its neighbours.
    Reject,
    /// Stop this table and say so; a person decides.
    Operator,
}

impl ErrorKind {
    /// The one decision from kind to action.
    #[must_use]
    pub const fn directive(self) -> Directive {
        match self {
            Self::Conflict | Self::Unavailable => Directive::Retry,
            Self::Invalid | Self::NotFound => Directive::Reject,
            Self::Denied | Self::Corrupt | Self::Internal => Directive::Operator,
        }
    }

    /// Whether the cause may pass while nobody changes the input: an outage, a race, a right that somebody gives.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable | Self::Denied)
    }

    /// The kind as a word for logs and status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Corrupt => "corrupt",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind, a message that names the object, an optional remedy and the cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    remedy: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; the message is lower case, without a full stop, and names the table, file or object.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), remedy: None, source: None }
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Shorthand for [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Shorthand for [`ErrorKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// Shorthand for [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds what the reader should do, as a sentence.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts `context: ` before the message, keeping kind, remedy and cause.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message alone.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The remedy, if one is known.
    #[must_use]
    pub fn remedy_text(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// Message, causes and remedy on one line, for the ledger, the status and the terminal.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        if let Some(remedy) = &self.remedy {
            text.push_str("; ");
            text.push_str(remedy);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = presentable(&self.message);
        match std::error::Error::source(self) {
            Some(cause) => f.write_str(&causes(&said, cause)),
            None => f.write_str(&said),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

/// A local file or folder that could not be used.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        // An error of our own that went through a reader comes out as it was.
        let error = match error.downcast::<Self>() {
            Ok(own) => return own,
            Err(error) => error,
        };
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        let mut out = Self::new(kind, error.to_string());
        out.remedy = remedy_of(&error);
        out.because(error)
    }
}

/// What to do about the operating system's trouble, however deep below an error it lies: object stores and bridges wrap it.
fn remedy_of(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use std::io::ErrorKind as Io;
    if let Some(own) = error.downcast_ref::<Error>()
        && let Some(remedy) = own.remedy_text()
    {
        return Some(remedy.to_owned());
    }
    let io = error.downcast_ref::<std::io::Error>();
    match io.map(std::io::Error::kind) {
        Some(Io::PermissionDenied) => return Some("give this user the right to use it".to_owned()),
        Some(Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge) => {
            return Some("free space on the disk (or raise the limit); nothing was lost".to_owned());
        }
        _ => {}
    }
    // The source of a wrapping I/O error is the source of what it wraps, not what it wraps.
    match io.and_then(std::io::Error::get_ref) {
        Some(wrapped) => remedy_of(wrapped),
        None => error.source().and_then(remedy_of),
    }
}

/// An Arrow computation that failed is a fault of this program unless a caller says otherwise.
impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        match error {
            arrow::error::ArrowError::IoError(text, io) => Self::from(io).within(text),
            other => Self::internal("arrow").because(other),
        }
    }
}

/// An object store call that failed, by what a caller can do about it.
impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as Store;
        let kind = match &error {
            Store::NotFound { .. } => ErrorKind::NotFound,
            Store::AlreadyExists { .. } | Store::Precondition { .. } => ErrorKind::Conflict,
            Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => ErrorKind::Denied,
            Store::InvalidPath { .. } | Store::NotSupported { .. } => ErrorKind::Internal,
            _ => ErrorKind::Unavailable,
        };
        let mut out = Self::new(kind, "storage");
        out.remedy = remedy_of(&error);
        out.because(error)
    }
}
