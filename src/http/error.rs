//! Failed invocations: the status code and the body. The host drops the body of a failure, so the reason is logged too.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::{Directive, Error};

/// The status of a failed function: never 2xx. 503 tells callers (other than the host, for which every failure is one)
/// that trying again may help.
#[must_use]
pub fn status(error: &Error) -> StatusCode {
    match error.kind().directive() {
        Directive::Retry => StatusCode::SERVICE_UNAVAILABLE,
        Directive::Reject | Directive::Operator => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer of a failed function.
pub(super) fn failure(error: &Error) -> Response {
    respond(status(error), error.kind().as_str(), &error.to_string(), error.remedy_text())
}

/// An answer that names what was wrong with a request.
pub(super) fn respond(status: StatusCode, kind: &str, message: &str, remedy: Option<&str>) -> Response {
    (status, Json(told(kind, message, remedy))).into_response()
}

/// The answer to a request that asks for what there is not.
pub(super) fn refuse(error: &Error) -> Response {
    (StatusCode::BAD_REQUEST, Json(body(error))).into_response()
}

/// An error as JSON.
pub(super) fn body(error: &Error) -> Value {
    told(error.kind().as_str(), &error.to_string(), error.remedy_text())
}

fn told(kind: &str, message: &str, remedy: Option<&str>) -> Value {
    json!({ "error": { "kind": kind, "message": message, "remedy": remedy } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn no_kind_of_error_looks_like_success() {
        for (kind, code) in [
            (ErrorKind::Invalid, 500),
            (ErrorKind::NotFound, 500),
            (ErrorKind::Conflict, 503),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Denied, 500),
            (ErrorKind::Corrupt, 500),
            (ErrorKind::Internal, 500),
        ] {
            assert_eq!(status(&Error::new(kind, "x")).as_u16(), code, "{kind:?}");
        }
    }
}
