//! Which scenario and which faults show that a safeguard is needed: the smallest that do.

use super::scenario::{SCENARIOS, Scenario};
use crate::error::Result;
use crate::faults::{Fault, Kind};
use crate::safeguard::Safeguard;

/// A scenario, and a fault that falls on some of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// The scenario.
    pub scenario: &'static str,
    /// What happens.
    pub fault: Fault,
    /// The calls that it happens at.
    pub kind: Kind,
}

impl Witness {
    /// The number of its scenario.
    ///
    /// # Errors
    /// There is no such scenario.
    pub fn number(&self) -> Result<usize> {
        let wanted = Scenario::named(self.scenario)?;
        Ok(SCENARIOS.iter().position(|scenario| scenario.name == wanted.name).unwrap_or_default())
    }
}

/// What shows that a safeguard is needed.
#[must_use]
pub const fn witness(safeguard: Safeguard) -> Witness {
    let (scenario, fault, kind) = match safeguard {
        Safeguard::SnapshotPlusOne | Safeguard::CreateEmptyFirst => ("append", Fault::Overtaken, Kind::Create),
        Safeguard::SettleBeforePlan => ("append", Fault::DeadAfter, Kind::Create),
        Safeguard::LedgerAfterSnapshot => ("append", Fault::HalfOvertaken, Kind::Read),
        Safeguard::LedgerTxn => ("append", Fault::AnswerLost, Kind::Create),
        Safeguard::QuarantineTxn => ("quarantine", Fault::AnswerLost, Kind::Create),
        Safeguard::AcknowledgeAfterManifest => ("append", Fault::Refused, Kind::Create),
        Safeguard::WorkersDeleteNothing => ("adopt", Fault::OvertakenAfter, Kind::Create),
        Safeguard::FreshNames => ("append", Fault::DeadBefore, Kind::Create),
        Safeguard::SourceOrder => ("correction", Fault::HalfOvertaken, Kind::Create),
        // Wrong without any fault.
        Safeguard::IntervalSets => ("stream", Fault::Refused, Kind::Create),
        Safeguard::WatermarkWithRows => ("layers", Fault::DeadBefore, Kind::Create),
        Safeguard::VacuumFence => ("append", Fault::Asleep, Kind::Create),
        Safeguard::EtagPin => ("growth", Fault::Landing, Kind::Read),
    };
    Witness { scenario, fault, kind }
}
