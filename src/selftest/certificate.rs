//! What a run of the matrix proves: how many calls and faults there were, and what they broke.

use std::collections::BTreeMap;

use serde::Serialize;

use super::point::{Finding, Point, Ran};
use crate::render::{Cell, Grid};

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// The version of this program.
    pub version: String,
    /// Where it ran.
    pub ground: String,
    /// What drew the sample.
    pub seed: u64,
    /// What was covered, by scenario.
    pub scenarios: Vec<Covered>,
    /// How often each fault fell.
    pub faults: BTreeMap<String, u64>,
    /// Points that were run.
    pub run: u64,
    /// All points that there are.
    pub points: u64,
    /// Points that were run and whose fault fell.
    pub met: u64,
    /// Rows that were lost.
    pub lost: u64,
    /// Rows that were doubled.
    pub doubled: u64,
    /// Points at which something does not hold.
    pub findings: Vec<Finding>,
}

/// What was covered of one scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// The scenario.
    pub scenario: String,
    /// What it is about.
    pub about: String,
    /// Rows of all its tables.
    pub rows: u64,
    /// Calls that it makes to storage and queue.
    pub calls: u64,
    /// Points that there are: calls, each with every fault that can fall on it.
    pub points: u64,
    /// Points that were run.
    pub run: u64,
    /// Points at which something does not hold.
    pub findings: u64,
}

impl Certificate {
    pub(super) fn new(ground: String, seed: u64, scenarios: &[Covered]) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ground,
            seed,
            scenarios: scenarios.to_vec(),
            faults: BTreeMap::new(),
            run: 0,
            points: scenarios.iter().map(|covered| covered.points).sum(),
            met: 0,
            lost: 0,
            doubled: 0,
            findings: Vec::new(),
        }
    }

    pub(super) fn count(&mut self, point: Point, ran: &Ran) {
        self.run += 1;
        if ran.is_met {
            self.met += 1;
            *self.faults.entry(point.fault.to_string()).or_default() += 1;
        }
        let name = point.of().name;
        let covered = self.scenarios.iter_mut().find(|covered| covered.scenario == name);
        if let Some(covered) = covered {
            covered.run += 1;
            covered.findings += u64::from(ran.finding.is_some());
        }
        if let Some(finding) = &ran.finding {
            self.lost += finding.lost;
            self.doubled += finding.doubled;
            self.findings.push(finding.clone());
        }
    }

    pub(super) fn sort(&mut self) {
        self.findings.sort_by_key(|finding| finding.replay);
    }

    /// Whether nothing was broken.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    /// For people: a line for each scenario.
    #[must_use]
    pub fn grid(&self) -> Grid {
        let mut grid = Grid::new(&["scenario", "rows", "calls", "points", "run", "broken", "about"]);
        for covered in &self.scenarios {
            let broken = if covered.findings == 0 { Cell::Empty } else { Cell::from(covered.findings) };
            grid.push(vec![
                covered.scenario.as_str().into(),
                covered.rows.into(),
                covered.calls.into(),
                covered.points.into(),
                covered.run.into(),
                broken,
                covered.about.as_str().into(),
            ]);
        }
        grid
    }

    /// For people: what the whole says.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let faults: Vec<String> = self.faults.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
        let mut lines = vec![
            format!("alluvium {}, {}, seed {}", self.version, self.ground, self.seed),
            format!("faults: {}", faults.join(", ")),
            format!("{} of {} points run, {} faults met", self.run, self.points, self.met),
            format!("lost {}, doubled {}, points that do not hold {}", self.lost, self.doubled, self.findings.len()),
        ];
        for finding in &self.findings {
            lines.push(format!("{} (alluvium selftest --replay {})", finding.point, finding.replay));
            lines.extend(finding.broken.iter().map(|broken| format!("  {broken}")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    fn certificate() -> Certificate {
        let scenarios = vec![
            Covered {
                scenario: "append".to_owned(),
                about: "files are appended".to_owned(),
                rows: 8,
                calls: 90,
                points: 412,
                run: 0,
                findings: 0,
            },
            Covered {
                scenario: "adopt".to_owned(),
                about: "staged Parquet becomes a file of the table as it is".to_owned(),
                rows: 8,
                calls: 95,
                points: 431,
                run: 0,
                findings: 0,
            },
        ];
        let mut certificate = Certificate::new("memory".to_owned(), 7, &scenarios);
        certificate.version = "1.2.3".to_owned();
        let fine = Ran { is_met: true, finding: None };
        certificate.count(Point { scenario: 0, call: 3, fault: Fault::DeadAfter }, &fine);
        certificate.count(Point { scenario: 1, call: 5, fault: Fault::Asleep }, &fine);
        certificate
    }

    fn with_a_finding() -> Certificate {
        let mut certificate = certificate();
        let point = Point { scenario: 1, call: 41, fault: Fault::AnswerLost };
        let finding = Finding {
            replay: point.number(),
            point: point.to_string(),
            lost: 0,
            doubled: 2,
            broken: vec!["raw/sales: 0 rows lost, 2 too many; the first: id=1".to_owned()],
        };
        certificate.count(point, &Ran { is_met: true, finding: Some(finding) });
        certificate
    }

    /// As it is printed.
    fn text(certificate: &Certificate) -> String {
        format!("{}\n{}", certificate.grid().text(None, false).trim_end(), certificate.lines().join("\n"))
    }

    #[test]
    fn a_certificate_says_what_was_covered() {
        let certificate = certificate();
        assert!(certificate.holds());
        insta::assert_snapshot!("holds", text(&certificate));
        insta::assert_json_snapshot!("holds_json", certificate);
    }

    #[test]
    fn a_certificate_says_what_does_not_hold_and_how_to_run_it_again() {
        let certificate = with_a_finding();
        assert!(!certificate.holds());
        assert_eq!(Point::of_number(certificate.findings[0].replay).unwrap().of().name, "adopt");
        insta::assert_snapshot!("finding", text(&certificate));
        insta::assert_json_snapshot!("finding_json", certificate);
    }
}
