//! What takes place in a run: contracts, and what producers and the host do, step by step. The matrix lets a fault fall on
//! every call that a scenario makes, so a call that is added to a step is covered without anyone listing it.

use chrono::TimeDelta;

use super::changes::streams;
use crate::catalog::Catalog;
use crate::cli::demo::shipped;
use crate::error::{Error, Result};
use crate::event::stream::StreamRecord;
use crate::http::Function;
use crate::pipeline::lake::Settings;

/// Records that a stream's trigger delivers at once.
pub type Piece = Vec<StreamRecord>;

/// Contracts, each with its path below the folder of contracts.
pub type Contracts = Vec<(String, String)>;

/// One step of a scenario.
#[derive(Debug, Clone)]
pub enum Step {
    /// A producer puts a file, whole, and its event.
    Land(String, String),
    /// Something that a crash left lies in the lake.
    Litter(&'static str),
    /// A stream delivers a piece, again and again until it is acknowledged.
    Deliver(Piece),
    /// Other contracts are deployed.
    Deploy(fn() -> Contracts),
    /// Time passes.
    Wait(TimeDelta),
    /// A function is called, for all that there is to do.
    Call(Function),
    /// Whoever is there reads what has landed; before that nobody overwrites it.
    UntilRead,
    /// Every function is called.
    CallAll,
}

/// A scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The contracts that are there first.
    contracts: fn() -> Contracts,
    /// Sizes and ages that differ from the usual ones.
    pub(super) settings: fn(Settings) -> Settings,
    steps: fn() -> Vec<Step>,
    /// Rows that tables have afterwards: the run without faults is right, too.
    pub(super) rows: &'static [(&'static str, usize)],
}

/// All scenarios, in the order of their numbers.
pub const SCENARIOS: [Scenario; 14] = [
    Scenario {
        name: "append",
        about: "files are appended",
        contracts: || vec![raw("")],
        settings: |usual| usual,
        steps: append,
        rows: &[("raw/sales", 5), ("ledger", 3)],
    },
    Scenario {
        name: "adopt",
        about: "staged Parquet becomes a file of the table as it is",
        contracts: || vec![raw("")],
        settings: adopting,
        steps: append,
        rows: &[("raw/sales", 5), ("ledger", 3)],
    },
    Scenario {
        name: "replace",
        about: "a corrected file replaces the rows of its older version",
        contracts: || vec![raw("on_overwrite: replace\n")],
        settings: |usual| usual,
        steps: versions,
        rows: &[("raw/sales", 3)],
    },
    Scenario {
        name: "versions",
        about: "every version of a file stays",
        contracts: || vec![raw("on_overwrite: append\n")],
        settings: |usual| usual,
        steps: all_versions,
        rows: &[("raw/sales", 5)],
    },
    Scenario {
        name: "upsert",
        about: "files are merged by key",
        contracts: || vec![with_mode("upsert")],
        settings: |usual| usual,
        steps: append,
        rows: &[("raw/sales", 4), ("ledger", 3)],
    },
    Scenario {
        name: "overwrite",
        about: "the table is its greatest file",
        contracts: || vec![with_mode("overwrite")],
        settings: |usual| usual,
        steps: || {
            let mut steps = append();
            steps.push(land("sales/d.csv", &[(7, 1, "north", "7.00")]));
            steps.extend(ingest_and_commit());
            steps
        },
        rows: &[("raw/sales", 1)],
    },
    Scenario {
        name: "quarantine",
        about: "bad records, an empty file, a refused file and one that nobody takes",
        contracts: || vec![raw("")],
        settings: |usual| usual,
        steps: quarantine,
        rows: &[("raw/sales", 4), ("quarantine/raw/sales", 4), ("ledger", 5)],
    },
    Scenario {
        name: "layers",
        about: "tables derived from tables, with a late file and a correction",
        contracts: layered,
        settings: |usual| usual,
        steps: layers,
        rows: &[("raw/sales", 5), ("aggregate/sales", 5), ("curated/sales_daily", 5)],
    },
    Scenario {
        name: "upkeep",
        about: "every function over a lake with a past and with litter",
        contracts: layered,
        settings: |usual| usual,
        steps: upkeep,
        rows: &[("raw/sales", 6), ("aggregate/sales", 6), ("curated/sales_daily", 5)],
    },
    Scenario {
        name: "adopted upkeep",
        about: "the same with adopted files",
        contracts: layered,
        settings: adopting,
        steps: upkeep,
        rows: &[("raw/sales", 6), ("aggregate/sales", 6), ("curated/sales_daily", 5)],
    },
    Scenario {
        name: "stream",
        about: "overlapping pieces of a change stream, and all that is derived from it",
        contracts: || shipped::CONTRACTS.map(|(path, yaml)| (path.to_owned(), yaml.to_owned())).to_vec(),
        settings: |usual| usual,
        steps: stream,
        rows: &[("bronze/shop", 24)],
    },
    Scenario {
        name: "correction",
        about: "a file is corrected while its first version is being read",
        contracts: || vec![raw("on_overwrite: replace\n")],
        settings: |usual| usual,
        steps: correction,
        rows: &[("raw/sales", 1)],
    },
    Scenario {
        name: "growth",
        about: "a file is overwritten by a longer one while it is being read, and every version stays",
        contracts: || vec![raw("on_overwrite: append\n")],
        settings: |usual| usual,
        steps: growth,
        rows: &[("raw/sales", 3)],
    },
    Scenario {
        name: "widening",
        about: "a changed contract makes columns wider while files are staged",
        contracts: narrow,
        settings: adopting,
        steps: widening,
        rows: &[("raw/sales", 6), ("aggregate/sales", 6), ("curated/sales_daily", 5)],
    },
];

impl Scenario {
    /// The scenario of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self> {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        found.copied().ok_or_else(|| {
            Error::invalid(format!("there is no scenario `{name}`")).remedy(format!("there are {}", names.join(", ")))
        })
    }

    /// What a soak takes place in: layers, and nothing that happens by itself.
    pub(super) fn soaked() -> Self {
        Self {
            name: "soak",
            about: "files at random",
            contracts: layered,
            settings: |usual| usual,
            steps: Vec::new,
            rows: &[],
        }
    }

    /// Its contracts.
    pub(super) fn catalog(&self) -> Result<Catalog> {
        catalog_of((self.contracts)()).map_err(|error| error.within(self.name))
    }

    /// What takes place.
    pub(super) fn steps(&self) -> Vec<Step> {
        (self.steps)()
    }
}

/// Contracts as a catalog.
///
/// # Errors
/// They have mistakes.
pub(super) fn catalog_of(contracts: Contracts) -> Result<Catalog> {
    Catalog::from_sources(contracts).map_err(|found| {
        let mistakes: Vec<String> = found.iter().map(|mistake| mistake.message.clone()).collect();
        Error::internal(format!("the contracts of a scenario: {}", mistakes.join("; ")))
    })
}

const RAW: &str = r#"version: 1
table: raw/sales
source: { path: "sales/**/*.csv", format: csv }
columns:
  - { name: id, type: int64, nullable: false }
  - { name: day, type: date, nullable: false }
  - { name: shop, type: string, nullable: false, max_length: 12 }
  - { name: amount, type: "decimal(10,2)", nullable: false }
rules:
  - { name: amount_not_negative, check: "amount >= 0", on_fail: quarantine }
"#;

const AGGREGATE: &str = "version: 1
table: aggregate/sales
from: raw/sales
primary_key: [id]
keep: first
order_by: [_file, _row]
partition_by: [day]
sql: select * from input
";

const CURATED: &str = "version: 1
table: curated/sales_daily
from: aggregate/sales
write_mode: upsert
primary_key: [day, shop]
recompute_by: [day]
sql: select day, shop, count(*) as sales, sum(amount) as revenue from input group by 1, 2
";

fn raw(more: &str) -> (String, String) {
    ("raw/sales.yaml".to_owned(), format!("{RAW}{more}"))
}

fn with_mode(mode: &str) -> (String, String) {
    raw(&format!("write_mode: {mode}\nprimary_key: [id]\n"))
}

/// The layered tables before their columns became wider.
fn narrow() -> Contracts {
    let narrower = |yaml: String| yaml.replace("int64", "int32").replace("decimal(10,2)", "decimal(6,2)");
    layered().into_iter().map(|(path, yaml)| (path, narrower(yaml))).collect()
}

fn layered() -> Contracts {
    let derived = [("aggregate/sales.yaml", AGGREGATE), ("curated/sales_daily.yaml", CURATED)];
    let derived = derived.map(|(path, yaml)| (path.to_owned(), yaml.to_owned()));
    std::iter::once(raw("")).chain(derived).collect()
}

fn adopting(usual: Settings) -> Settings {
    Settings { adopt_bytes: 1, ..usual }
}

/// A row of sales: id, day of January 2026, shop, amount.
pub(super) type Sale = (i64, u32, &'static str, &'static str);

pub(super) fn sales(rows: &[Sale]) -> String {
    let lines = rows.iter().map(|(id, day, shop, amount)| format!("{id},2026-01-{day:02},{shop},{amount}\n"));
    std::iter::once("id,day,shop,amount\n".to_owned()).chain(lines).collect()
}

fn land(path: &str, rows: &[Sale]) -> Step {
    Step::Land(path.to_owned(), sales(rows))
}

fn ingest_and_commit() -> [Step; 2] {
    [Step::Call(Function::Ingest), Step::Call(Function::Commit)]
}

fn append() -> Vec<Step> {
    let mut steps = vec![
        land("sales/a.csv", &[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")]),
        land("sales/b.csv", &[(3, 2, "north", "3.00"), (4, 2, "south", "4.00")]),
    ];
    steps.extend(ingest_and_commit());
    steps.push(land("sales/c.csv", &[(1, 3, "north", "9.00")]));
    steps.extend(ingest_and_commit());
    steps
}

/// A file, its correction before it is committed, another one after it, and the first content again.
fn versions() -> Vec<Step> {
    let first = [(1, 1, "north", "1.00"), (2, 1, "south", "2.00")];
    let mut steps = vec![land("sales/a.csv", &first), land("sales/b.csv", &[(9, 1, "north", "9.00")])];
    steps.push(Step::Call(Function::Ingest));
    steps.push(land("sales/a.csv", &[(1, 1, "north", "1.50")]));
    steps.extend(ingest_and_commit());
    steps.push(land("sales/a.csv", &[(7, 7, "north", "7.00"), (8, 8, "south", "8.00"), (6, 6, "east", "6.00")]));
    steps.extend(ingest_and_commit());
    steps.push(land("sales/a.csv", &first));
    steps.extend(ingest_and_commit());
    steps
}

/// Nothing comes after the correction: an older version that is staged later stands last.
fn correction() -> Vec<Step> {
    let mut steps = vec![land("sales/a.csv", &[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])];
    steps.push(Step::Call(Function::Ingest));
    steps.push(land("sales/a.csv", &[(1, 1, "north", "1.50")]));
    steps.extend(ingest_and_commit());
    steps
}

/// The first version brings no row, so nothing depends on whether it was read. It is as long as the header and the first
/// record of the second: whoever reads it without being sure of the version has that record, under the wrong name.
fn growth() -> Vec<Step> {
    let mut steps = vec![land("sales/a.csv", &[(1, 1, "north", "-1.00")])];
    steps.push(Step::Call(Function::Ingest));
    steps.push(land("sales/a.csv", &[(1, 1, "north", "10.00"), (2, 1, "south", "2.00"), (3, 1, "south", "3.00")]));
    steps.extend(ingest_and_commit());
    steps
}

/// Versions that all were read before the next one came: what was read depends on nothing.
fn all_versions() -> Vec<Step> {
    let mut steps = Vec::new();
    for (path, rows) in [
        ("sales/a.csv", &[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")][..]),
        ("sales/b.csv", &[(3, 1, "north", "3.00")]),
        ("sales/a.csv", &[(4, 1, "north", "4.00"), (5, 1, "south", "5.00")]),
    ] {
        steps.push(land(path, rows));
        steps.extend([Step::Call(Function::Ingest), Step::UntilRead, Step::Call(Function::Commit)]);
    }
    steps
}

fn quarantine() -> Vec<Step> {
    let with_faults = "id,day,shop,amount\n7,2026-01-02,north,1.00\nx,2026-01-02,north,1.00\n\
                       8,2026-01-02,south,-1.00\n9,2026-01-03,south\n10,2026-01-03,east,2.50\n";
    let mut steps = vec![
        land("sales/a.csv", &[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")]),
        Step::Land("sales/bad.csv".to_owned(), with_faults.to_owned()),
        land("sales/empty.csv", &[]),
    ];
    steps.extend(ingest_and_commit());
    steps.push(Step::Land("sales/refused.csv".to_owned(), "no,such,header\n1,2,3\n".to_owned()));
    steps.push(Step::Land("elsewhere/d.txt".to_owned(), "nobody's".to_owned()));
    steps.extend(ingest_and_commit());
    steps
}

fn layers() -> Vec<Step> {
    let mut steps = append();
    // Late, for a day that is there; then a correction, after which the key 1 falls to the third file.
    steps.push(land("sales/late.csv", &[(5, 1, "north", "5.00"), (6, 1, "south", "-6.00")]));
    steps.extend(ingest_and_commit());
    steps.push(land("sales/a.csv", &[(2, 1, "south", "2.50")]));
    steps.extend(ingest_and_commit());
    steps
}

/// One file is committed and one staged when the contract changes; the third has what only the wider columns hold.
fn widening() -> Vec<Step> {
    let mut steps = vec![land("sales/a.csv", &[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])];
    steps.extend(ingest_and_commit());
    steps.push(land("sales/b.csv", &[(3, 2, "north", "3.00"), (4, 2, "south", "4.00")]));
    steps.extend([Step::Call(Function::Ingest), Step::Deploy(layered), Step::Call(Function::Commit)]);
    steps.push(land("sales/c.csv", &[(5_000_000_000, 1, "north", "99999999.99"), (6, 3, "north", "6.00")]));
    steps.extend(ingest_and_commit());
    steps
}

/// What crashes leave: data files that no version has, staged data without a manifest, a plan that nobody committed.
const LITTER: [&str; 6] = [
    "raw/sales/part-orphan.parquet",
    "aggregate/sales/day=2026-01-01/part-orphan.parquet",
    "quarantine/raw/sales/part-orphan.parquet",
    "ledger/table=raw%2Fsales/part-orphan.parquet",
    "_alluvium/staged/raw/sales/data/orphan.arrow",
    "_alluvium/plans/raw/sales/7.json",
];

fn upkeep() -> Vec<Step> {
    let mut steps = layers();
    steps.extend(LITTER.map(Step::Litter));
    steps.push(Step::Wait(TimeDelta::days(8)));
    steps.push(land("sales/new.csv", &[(11, 1, "north", "1.00")]));
    steps.push(Step::CallAll);
    steps.push(Step::Wait(TimeDelta::days(8)));
    steps.push(Step::CallAll);
    steps
}

fn stream() -> Vec<Step> {
    let streams = streams(11, 24);
    let mut steps = Vec::new();
    for ranges in [[0..8, 6..14], [12..18, 16..24]] {
        for range in ranges {
            steps.push(Step::Deliver(streams[0][range].iter().map(super::changes::Record::delivered).collect()));
        }
        steps.push(Step::Call(Function::CdcKafka));
        steps.push(Step::Call(Function::Commit));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_scenario_has_contracts_that_are_right_and_a_name_of_its_own() {
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        for scenario in SCENARIOS {
            assert!(!scenario.catalog().unwrap().tables().is_empty(), "{}", scenario.name);
            assert!(!scenario.steps().is_empty() && !scenario.rows.is_empty(), "{}", scenario.name);
            assert_eq!(Scenario::named(scenario.name).unwrap().about, scenario.about);
        }
        assert!(Scenario::named("none").is_err());
    }
}
