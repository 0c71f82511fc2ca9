//! The figures of a bench: medians, and what the runs used.

use serde_json::{Value, json};

use super::child::Measured;
use super::measure::median;
use crate::cli::output;
use crate::error::Result;
use crate::generate::Trips;
use crate::render::{Grid, Output, grouped, human_bytes};

/// All runs.
#[derive(Debug)]
pub struct Report {
    trips: Trips,
    bytes: u64,
    /// Loads from the landing zone to curated.
    pub load: Vec<Measured>,
    /// Staging by one worker.
    pub stage_one: Vec<Measured>,
    /// Staging by two.
    pub stage_two: Vec<Measured>,
    /// Loads to raw by adopting files.
    pub adopt: Vec<Measured>,
    /// Commits of very many adopted files.
    pub metadata: Vec<Measured>,
    /// Many small commits.
    pub small: Option<Measured>,
    /// Seconds of the peer.
    pub peer: Vec<f64>,
}

impl Report {
    /// Without any run yet.
    #[must_use]
    pub const fn new(trips: Trips, bytes: u64) -> Self {
        Self {
            trips,
            bytes,
            load: Vec::new(),
            stage_one: Vec::new(),
            stage_two: Vec::new(),
            adopt: Vec::new(),
            metadata: Vec::new(),
            small: None,
            peer: Vec::new(),
        }
    }

    /// Prints the figures.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn print(&self, output: Output) -> Result<()> {
        match output {
            Output::Json => output::json(&self.json()),
            Output::Table => {
                output::note(&format!(
                    "{} files x {} rows, {}; medians of {}",
                    self.trips.files,
                    grouped(i64::try_from(self.trips.rows).unwrap_or(i64::MAX)),
                    human_bytes(self.bytes),
                    self.load.len()
                ));
                output::grid(&self.grid(), output, "nothing was measured")
            }
        }
    }

    fn rows(&self) -> u64 {
        self.trips.files * self.trips.rows
    }

    fn figures(&self) -> Figures {
        let of = |runs: &[Measured], pick: fn(&Measured) -> f64| median(runs.iter().map(pick));
        let share = |run: &Measured| run.commit_cpu_s / (run.commit_cpu_s + run.stage_cpu_s).max(1e-9);
        let two = of(&self.stage_two, |run| run.stage_s);
        Figures {
            raw_s: of(&self.load, |run| run.raw_s),
            curated_s: of(&self.load, |run| run.curated_s),
            peak_bytes: self.load.iter().map(|run| run.peak_bytes).max().unwrap_or_default(),
            speed_up: of(&self.stage_one, |run| run.stage_s) / two.max(1e-9),
            committer_share: median(self.load.iter().map(share)),
            committer_share_adopted: median(self.adopt.iter().map(share)),
            metadata_commit_s: of(&self.metadata, |run| run.commit_s),
            small_commit_s: self.small.as_ref().map_or(0.0, |run| run.commit_s),
            peer_s: (!self.peer.is_empty()).then(|| median(self.peer.iter().copied())),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "rates are shown to a few digits")]
    fn grid(&self) -> Grid {
        let figures = self.figures();
        let mut grid = Grid::new(&["what", "figure", "rate"]);
        let mut line = |what: &str, figure: String, rate: Option<String>| {
            grid.push(vec![what.into(), figure.into(), rate.into()]);
        };
        let rate = |seconds: f64| {
            let rows = self.rows() as f64 / seconds.max(1e-9);
            let megabytes = self.bytes as f64 / 1e6 / seconds.max(1e-9);
            Some(format!("{:.2} million rows/s, {megabytes:.0} MB/s", rows / 1e6))
        };
        line("to raw", format!("{:.2} s", figures.raw_s), rate(figures.raw_s));
        line("to curated", format!("{:.2} s", figures.curated_s), rate(figures.curated_s));
        line("peak memory", human_bytes(figures.peak_bytes), None);
        line("staging, 2 workers over 1", format!("{:.2} x", figures.speed_up), None);
        line("committer's CPU, coalescing", format!("{:.1} %", figures.committer_share * 100.0), None);
        line("committer's CPU, adopting", format!("{:.1} %", figures.committer_share_adopted * 100.0), None);
        line("commit of 1,000 staged files", format!("{:.0} ms", figures.metadata_commit_s * 1e3), None);
        line("commit of one small file", format!("{:.1} ms", figures.small_commit_s * 1e3), None);
        if let Some(peer) = figures.peer_s {
            line("peer", format!("{peer:.2} s"), rate(peer));
            line("peer / to raw", format!("{:.2} x", peer / figures.raw_s.max(1e-9)), None);
            line("peer / to curated", format!("{:.2} x", peer / figures.curated_s.max(1e-9)), None);
        }
        grid
    }

    #[expect(clippy::cast_precision_loss, reason = "rates are shown to a few digits")]
    fn json(&self) -> Value {
        let figures = self.figures();
        let rate = |seconds: f64| self.rows() as f64 / seconds.max(1e-9);
        json!({
            "files": self.trips.files,
            "rows": self.rows(),
            "bytes": self.bytes,
            "reps": self.load.len(),
            "raw_s": figures.raw_s,
            "raw_rows_per_s": rate(figures.raw_s),
            "raw_mb_per_s": self.bytes as f64 / 1e6 / figures.raw_s.max(1e-9),
            "curated_s": figures.curated_s,
            "curated_rows_per_s": rate(figures.curated_s),
            "curated_mb_per_s": self.bytes as f64 / 1e6 / figures.curated_s.max(1e-9),
            "peak_bytes": figures.peak_bytes,
            "staging_speed_up_of_2_workers": figures.speed_up,
            "committer_cpu_share": figures.committer_share,
            "committer_cpu_share_adopting": figures.committer_share_adopted,
            "commit_of_1000_staged_files_s": figures.metadata_commit_s,
            "commit_of_one_small_file_s": figures.small_commit_s,
            "peer_s": figures.peer_s,
            "peer_over_raw": figures.peer_s.map(|peer| peer / figures.raw_s.max(1e-9)),
            "peer_over_curated": figures.peer_s.map(|peer| peer / figures.curated_s.max(1e-9)),
        })
    }
}

struct Figures {
    raw_s: f64,
    curated_s: f64,
    peak_bytes: u64,
    speed_up: f64,
    committer_share: f64,
    committer_share_adopted: f64,
    metadata_commit_s: f64,
    small_commit_s: f64,
    peer_s: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_ratios_of_medians() {
        let mut report = Report::new(Trips { files: 200, rows: 50_000, days: 50, seed: 7 }, 902_000_000);
        for (raw_s, curated_s) in [(8.0, 12.0), (10.0, 14.0), (30.0, 40.0)] {
            let measured = Measured { raw_s, curated_s, peak_bytes: 700 << 20, ..Measured::default() };
            report.load.push(Measured { stage_cpu_s: 9.0, commit_cpu_s: 1.0, ..measured });
        }
        report.stage_one.push(Measured { stage_s: 3.8, ..Measured::default() });
        report.stage_two.push(Measured { stage_s: 2.0, ..Measured::default() });
        report.adopt.push(Measured { stage_cpu_s: 99.0, commit_cpu_s: 1.0, ..Measured::default() });
        report.metadata.push(Measured { commit_s: 0.15, ..Measured::default() });
        report.small = Some(Measured { commit_s: 0.0123, ..Measured::default() });
        report.peer = vec![20.0, 25.0];
        insta::assert_snapshot!(report.grid().text(None, false));
        assert_eq!(report.json()["peer_over_raw"], 2.25);
    }
}
