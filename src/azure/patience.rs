//! How long a service is waited for: long where a program has nobody waiting for it, short where a person has.

use std::sync::Arc;
use std::time::Duration;

use azure_core::http::{ExponentialRetryOptions, RetryOptions, Transport};
use azure_core::time::Duration as SdkDuration;

use crate::error::{Error, Result};

/// How long a call goes on trying before its caller is told that the service does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(Duration);

/// A connection that is not made within this will not be made.
const LONGEST_CONNECTING: Duration = Duration::from_secs(5);

/// A request is given up after this long and made again.
const LONGEST_REQUEST: Duration = Duration::from_secs(60);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Patience {
    /// Of functions and hosts: long enough for a service that starts again, short enough for the time of one function.
    pub const LONG: Self = Self(Duration::from_secs(60));

    /// Of a command that somebody waits for.
    pub const SHORT: Self = Self(Duration::from_secs(5));

    /// As long as somebody said.
    #[must_use]
    pub const fn of(whole: Duration) -> Self {
        Self(whole)
    }

    /// After this no further try is made.
    #[must_use]
    pub const fn whole(self) -> Duration {
        self.0
    }

    /// How long a connection may take.
    #[must_use]
    pub fn connect(self) -> Duration {
        LONGEST_CONNECTING.min(self.0)
    }

    /// How long one request may take. Whoever is impatient may still read a big piece over a slow line.
    #[must_use]
    pub fn request(self) -> Duration {
        LONGEST_REQUEST.min(self.0.saturating_mul(4))
    }

    /// The longest pause between two tries.
    #[must_use]
    pub fn longest_pause(self) -> Duration {
        LONGEST_PAUSE.min(self.0 / 4)
    }

    /// The same for clients of the Azure SDK.
    pub(super) fn retries(self) -> RetryOptions {
        let sdk = |duration: Duration| SdkDuration::try_from(duration).unwrap_or(SdkDuration::MAX);
        RetryOptions::exponential(ExponentialRetryOptions {
            initial_delay: SdkDuration::milliseconds(100),
            // Time is what ends them.
            max_retries: 1000,
            max_total_elapsed: sdk(self.whole()),
            max_delay: sdk(self.longest_pause()),
        })
    }

    /// The connections of all clients of the Azure SDK to one account.
    pub(super) fn transport(self) -> Result<Transport> {
        let client = reqwest::Client::builder()
            .connect_timeout(self.connect())
            .read_timeout(self.request())
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|error| Error::internal("the HTTP client").because(error))?;
        Ok(Transport::new(Arc::new(client)))
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::LONG
    }
}
