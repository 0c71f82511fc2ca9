//! `alluvium bench cdc`: change events into bronze, silver and gold, and a few changes into tables of many rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::cdc_child::{Changed, Keys, Loaded, write_lines};
use super::measure::median;
use super::runs::Runs;
use super::services::{Served, event_files};
use crate::cli::output;
use crate::decode::debezium::read;
use crate::error::{Error, Result};
use crate::generate::shop::{Shop, Trouble};
use crate::render::{Grid, Output, grouped, human_bytes};

/// Events in a file of the made-up input.
const FILE_EVENTS: usize = 100_000;

/// Arguments of `bench cdc`.
#[derive(Debug, Args)]
pub struct CdcArgs {
    /// Made-up events
    #[arg(long, value_name = "N", default_value_t = 510_000)]
    pub events: u64,
    /// A folder of files of events of the shop to load in their place
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Measure, in place of the load, changes into a table of so many rows; more than one are compared
    #[arg(long = "keys", value_name = "N")]
    pub keys: Vec<u64>,
    /// Changes that fall on such a table at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub changes: u64,
    /// Measure, in place of files, from Kafka's topics and from PostgreSQL's commits, with what `tests/services env` names
    #[arg(long, conflicts_with_all = ["keys", "peer"])]
    pub services: bool,
    /// With --services: changes of a second while commits are timed
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    pub rate: u64,
    /// With --services: for so many seconds
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub seconds: u64,
    /// Runs of each measurement; medians are told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub reps: u16,
    /// Folder for the input (made once) and the runs' homes
    #[arg(long, value_name = "FOLDER", default_value = "bench-data")]
    pub dir: PathBuf,
    /// A command to race against, run by turns; {data} is the input folder, {out} an absent folder of its own
    #[arg(long, value_name = "COMMAND", conflicts_with = "keys")]
    pub peer: Option<String>,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// All runs.
#[derive(Debug, Default)]
pub struct Report {
    bytes: u64,
    loads: Vec<Loaded>,
    peer: Vec<f64>,
    keys: Vec<Keys>,
    changes: u64,
    served: Vec<Served>,
}

/// Measures.
///
/// # Errors
/// A run failed.
pub async fn run(args: &CdcArgs) -> Result<Report> {
    let mut report = Report { changes: args.changes, ..Report::default() };
    if !args.keys.is_empty() {
        let mut runs = Runs::new(&args.dir, &args.dir);
        let bar = output::bar(args.keys.len() as u64, "measuring");
        for keys in &args.keys {
            let words = ["--keys", &keys.to_string(), "--changes", &args.changes.to_string()].map(Into::into);
            let reps = ["--reps".into(), args.reps.to_string().into()];
            let words: Vec<_> = std::iter::once("keys-child".into()).chain(words).chain(reps).collect();
            report.keys.push(runs.child(&words).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        return Ok(report);
    }
    let data = match &args.data {
        Some(data) => data.canonicalize().map_err(|error| Error::from(error).within(data.display()))?,
        None => prepare(&args.dir, args.events)?,
    };
    report.bytes = events_bytes(&data)?;
    let mut runs = Runs::new(&args.dir, &data);
    if args.services {
        let bar = output::bar(u64::from(args.reps), "measuring");
        for _ in 0..args.reps {
            let mut words = vec!["services-child".into(), "--data".into(), data.clone().into_os_string()];
            words.extend(["--rate".into(), args.rate.to_string().into()]);
            words.extend(["--seconds".into(), args.seconds.to_string().into()]);
            report.served.push(runs.child(&words).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        return Ok(report);
    }
    let bar = output::bar(u64::from(args.reps) * (1 + u64::from(args.peer.is_some())), "measuring");
    for _ in 0..args.reps {
        // By turns, so that whatever else the machine does falls on both.
        report.loads.push(runs.child(&["cdc-child".into(), "--data".into(), data.clone().into_os_string()]).await?);
        bar.inc(1);
        if let Some(peer) = &args.peer {
            report.peer.push(runs.peer(peer).await?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Makes the input once, in files of one topic each; a set that was made whole before is taken as it is.
fn prepare(dir: &Path, events: u64) -> Result<PathBuf> {
    let folder = dir.join(format!("shop-{events}")).join("events");
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    let complete = folder.with_file_name("complete");
    if !complete.is_file() {
        let bar = output::bar(1, "making input");
        let shop = Shop { events, seed: 7, trouble: Trouble::USUAL };
        let mut waiting: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        let mut files = 0;
        let mut write = |topic: &str, lines: Vec<Vec<u8>>| {
            files += 1;
            write_lines(&folder.join(format!("{topic}-{files:04}.ndjson")), lines.into_iter())
        };
        for line in shop.lines() {
            let topic = read(&line).topic.map(std::borrow::Cow::into_owned).unwrap_or_default();
            let lines = waiting.entry(topic.clone()).or_default();
            lines.push(line);
            if lines.len() >= FILE_EVENTS {
                write(&topic, std::mem::take(lines))?;
            }
        }
        waiting
            .into_iter()
            .filter(|(_, lines)| !lines.is_empty())
            .try_for_each(|(topic, lines)| write(&topic, lines))?;
        bar.finish_and_clear();
        fs::write(&complete, "").map_err(within)?;
    }
    folder.canonicalize().map_err(within)
}

fn events_bytes(folder: &Path) -> Result<u64> {
    let size = |path: PathBuf| {
        path.metadata().map(|file| file.len()).map_err(|error| Error::from(error).within(path.display()))
    };
    event_files(folder)?.into_iter().map(size).sum()
}

/// One figure of a run.
type Figure = fn(&Loaded) -> f64;

impl Report {
    /// Prints the figures.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn print(&self, output: Output) -> Result<()> {
        match output {
            Output::Json => output::json(&self.json()),
            Output::Table => {
                if let Some(first) = self.loads.first() {
                    let events = grouped(i64::try_from(first.events).unwrap_or(i64::MAX));
                    let runs = self.loads.len();
                    output::note(&format!("{events} events, {}; medians of {runs}", human_bytes(self.bytes)));
                }
                output::grid(&self.grid(), output, "nothing was measured")
            }
        }
    }

    fn loaded(&self, of: Figure) -> f64 {
        median(self.loads.iter().map(of))
    }

    fn topics_s(&self) -> f64 {
        median(self.served.iter().map(|run| run.gold_s))
    }

    fn commits_s(&self) -> Vec<f64> {
        self.served.iter().flat_map(|run| run.commits_s.iter().copied()).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "rates are shown to a few digits")]
    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&["what", "figure", "rate"]);
        let mut line = |what: &str, figure: String, rate: Option<String>| {
            grid.push(vec![what.into(), figure.into(), rate.into()]);
        };
        if let Some(first) = self.loads.first() {
            let rate = |seconds: f64| {
                let events = first.events as f64 / seconds.max(1e-9);
                let megabytes = self.bytes as f64 / 1e6 / seconds.max(1e-9);
                Some(format!("{:.0} thousand events/s, {megabytes:.0} MB/s", events / 1e3))
            };
            let steps: [(&str, Figure); 4] = [
                ("staged", |run| run.staged_s),
                ("to bronze", |run| run.bronze_s),
                ("to silver, history, quarantine", |run| run.silver_s),
                ("to gold", |run| run.gold_s),
            ];
            for (what, of) in steps {
                line(what, format!("{:.2} s", self.loaded(of)), rate(self.loaded(of)));
            }
            line("CPU of all", format!("{:.2} s", self.loaded(|run| run.cpu_s)), None);
            let peak = self.loads.iter().map(|run| run.peak_bytes).max();
            line("peak memory", human_bytes(peak.unwrap_or_default()), None);
        }
        if !self.peer.is_empty() {
            let peer = median(self.peer.iter().copied());
            line("peer", format!("{peer:.2} s"), None);
            line("peer / to gold", format!("{:.2} x", peer / self.loaded(|run| run.gold_s).max(1e-9)), None);
        }
        if let Some(first) = self.served.first() {
            let rate = first.records as f64 / self.topics_s().max(1e-9);
            line(
                &format!(
                    "{} records of Kafka's topics to gold",
                    grouped(i64::try_from(first.records).unwrap_or(i64::MAX))
                ),
                format!("{:.2} s", self.topics_s()),
                Some(format!("{:.0} thousand records/s", rate / 1e3)),
            );
            let commits = self.commits_s();
            line(
                "a commit of PostgreSQL to gold",
                format!("{:.2} s", median(commits.iter().copied())),
                Some(format!(
                    "{} commits, the slowest {:.2} s",
                    commits.len(),
                    commits.iter().copied().fold(0.0, f64::max)
                )),
            );
            line("  meanwhile", format!("{:.0} changes/s", median(self.served.iter().map(|run| run.rate))), None);
        }
        let changes = grouped(i64::try_from(self.changes).unwrap_or(i64::MAX));
        for keys in &self.keys {
            let rows = grouped(i64::try_from(keys.keys).unwrap_or(i64::MAX));
            line(&format!("{rows} rows loaded"), format!("{:.1} s", keys.load_s), None);
            for (runs, which) in [(&keys.newest, "mostly newest"), (&keys.even, "any")] {
                let rewritten = human_bytes(rewritten(runs));
                let what = format!("{changes} changes of them, {which}");
                line(&what, format!("{:.2} s", silver_s(runs)), Some(format!("{rewritten} rewritten")));
                let gold = median(runs.iter().map(|run| run.gold_s));
                line("  gold after that", format!("{gold:.2} s"), None);
            }
            let of = format!("{} while loading", human_bytes(keys.load_peak_bytes));
            line("peak memory", human_bytes(keys.peak_bytes), Some(of));
        }
        if let (Some(few), Some(many)) = (self.keys.first(), self.keys.get(1)) {
            for (few, many, which) in [(&few.newest, &many.newest, "mostly newest"), (&few.even, &many.even, "any")] {
                let ratio = silver_s(many) / silver_s(few).max(1e-9);
                line(&format!("more rows / fewer rows, {which}"), format!("{ratio:.2} x"), None);
            }
        }
        grid
    }

    fn json(&self) -> Value {
        let peer = (!self.peer.is_empty()).then(|| median(self.peer.iter().copied()));
        let changed = |runs: &[Changed]| {
            let gold_s = median(runs.iter().map(|run| run.gold_s));
            json!({"silver_s": silver_s(runs), "gold_s": gold_s, "rewritten_bytes": rewritten(runs)})
        };
        let keys = |keys: &Keys| {
            json!({
                "keys": keys.keys, "load_s": keys.load_s, "load_peak_bytes": keys.load_peak_bytes,
                "newest": changed(&keys.newest), "even": changed(&keys.even), "peak_bytes": keys.peak_bytes,
            })
        };
        json!({
            "events": self.loads.first().map(|run| run.events),
            "bytes": self.bytes,
            "reps": self.loads.len(),
            "staged_s": self.loaded(|run| run.staged_s),
            "bronze_s": self.loaded(|run| run.bronze_s),
            "silver_s": self.loaded(|run| run.silver_s),
            "gold_s": self.loaded(|run| run.gold_s),
            "cpu_s": self.loaded(|run| run.cpu_s),
            "peak_bytes": self.loads.iter().map(|run| run.peak_bytes).max(),
            "peer_s": peer,
            "peer_over_gold": peer.map(|peer| peer / self.loaded(|run| run.gold_s).max(1e-9)),
            "changes": self.changes,
            "keys": self.keys.iter().map(keys).collect::<Vec<_>>(),
            "services": self.served,
        })
    }
}

fn silver_s(runs: &[Changed]) -> f64 {
    median(runs.iter().map(|run| run.silver_s))
}

fn rewritten(runs: &[Changed]) -> u64 {
    runs.iter().map(|run| run.rewritten_bytes).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_ratios_of_medians() {
        let loads = [(3.0, 4.0, 5.0), (2.0, 3.0, 4.0), (9.0, 9.5, 9.9)].map(|(bronze_s, silver_s, gold_s)| Loaded {
            staged_s: 1.0,
            bronze_s,
            silver_s,
            gold_s,
            cpu_s: 7.0,
            peak_bytes: 700 << 20,
            events: 510_663,
        });
        let keys = |keys, silver_s| Keys {
            keys,
            load_s: 9.0,
            load_peak_bytes: 800 << 20,
            newest: vec![Changed { silver_s, gold_s: 0.1, rewritten_bytes: 5 << 20 }],
            even: vec![Changed { silver_s: silver_s * 4.0, gold_s: 0.2, rewritten_bytes: 50 << 20 }],
            peak_bytes: 900 << 20,
        };
        let report = Report {
            bytes: 343_000_000,
            loads: loads.into(),
            peer: vec![6.0, 7.0],
            keys: vec![keys(1_000_000, 0.5), keys(10_000_000, 1.0)],
            changes: 10_000,
            served: vec![
                Served { records: 510_000, gold_s: 10.0, commits_s: vec![1.5, 2.5], rate: 1_000.0 },
                Served { records: 510_000, gold_s: 12.0, commits_s: vec![1.0], rate: 990.0 },
            ],
        };
        insta::assert_snapshot!(report.grid().text(None, false));
        assert_eq!(report.json()["peer_over_gold"], 1.3);
    }

    #[test]
    fn the_input_is_made_once_in_files_of_one_topic() {
        let dir = tempfile::tempdir().unwrap();
        let folder = prepare(dir.path(), 300).unwrap();
        let mut topics = BTreeMap::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            for line in fs::read_to_string(&path).unwrap().lines() {
                let topic = read(line.as_bytes()).topic.unwrap().into_owned();
                assert!(path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{topic}-")));
                *topics.entry(topic).or_insert(0) += 1;
            }
        }
        assert!(topics.values().sum::<i32>() >= 300 && topics.len() >= 4, "{topics:?}");
        let bytes = events_bytes(&folder).unwrap();
        fs::write(folder.join("notes.txt"), "kept").unwrap();
        prepare(dir.path(), 300).unwrap();
        assert_eq!(events_bytes(&folder).unwrap(), bytes);
        assert!(folder.join("notes.txt").is_file());
    }
}
