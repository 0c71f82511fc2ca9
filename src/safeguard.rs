//! The safeguards of the exactly-once protocol that a test build can take away one by one, so that a test shows that each
//! is needed and that the matrix of faults would notice if one were gone.

/// One safeguard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Safeguard {
    /// A commit is made at exactly the version after its snapshot.
    SnapshotPlusOne,
    /// A table is created empty, so that its first rows meet the commit rule like all others.
    CreateEmptyFirst,
    /// What a former run committed is settled before anything is planned.
    SettleBeforePlan,
    /// The ledger is read after the table's snapshot.
    LedgerAfterSnapshot,
    /// The ledger's own transaction says whether a plan's rows are in it.
    LedgerTxn,
    /// The quarantine table's own transaction says whether a plan's rejects are in it.
    QuarantineTxn,
    /// A delivery is acknowledged after its manifest is there.
    AcknowledgeAfterManifest,
    /// Workers delete nothing, whoever came first.
    WorkersDeleteNothing,
    /// Data is written under fresh names.
    FreshNames,
    /// Of several versions of a path the landing zone says which is the newest.
    SourceOrder,
    /// Of a piece of a stream only the offsets that nobody brought are kept.
    IntervalSets,
    /// A derived table's watermark moves in the commit of its rows.
    WatermarkWithRows,
    /// A vacuum commits a fence before it decides what to delete.
    VacuumFence,
    /// A landed file is read at the version that its batch is named by.
    EtagPin,
}

impl Safeguard {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::SnapshotPlusOne,
        Self::CreateEmptyFirst,
        Self::SettleBeforePlan,
        Self::LedgerAfterSnapshot,
        Self::LedgerTxn,
        Self::QuarantineTxn,
        Self::AcknowledgeAfterManifest,
        Self::WorkersDeleteNothing,
        Self::FreshNames,
        Self::SourceOrder,
        Self::IntervalSets,
        Self::WatermarkWithRows,
        Self::VacuumFence,
        Self::EtagPin,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SnapshotPlusOne => "snapshot-plus-one",
            Self::CreateEmptyFirst => "create-empty-first",
            Self::SettleBeforePlan => "settle-before-plan",
            Self::LedgerAfterSnapshot => "ledger-after-snapshot",
            Self::LedgerTxn => "ledger-txn",
            Self::QuarantineTxn => "quarantine-txn",
            Self::AcknowledgeAfterManifest => "acknowledge-after-manifest",
            Self::WorkersDeleteNothing => "workers-delete-nothing",
            Self::FreshNames => "fresh-names",
            Self::SourceOrder => "source-order",
            Self::IntervalSets => "interval-sets",
            Self::WatermarkWithRows => "watermark-with-rows",
            Self::VacuumFence => "vacuum-fence",
            Self::EtagPin => "etag-pin",
        }
    }

    /// What breaks without it.
    #[must_use]
    pub const fn without_it(self) -> &'static str {
        match self {
            Self::SnapshotPlusOne => "two committers commit the same batch",
            Self::CreateEmptyFirst => "the first commit of a table is made twice",
            Self::SettleBeforePlan => "a batch that was committed before a crash is committed again",
            Self::LedgerAfterSnapshot => "a batch that another committer settled meanwhile is planned again",
            Self::LedgerTxn => "a lost answer doubles rows of the ledger",
            Self::QuarantineTxn => "a lost answer doubles records in quarantine",
            Self::AcknowledgeAfterManifest => "a file is acknowledged and never loaded",
            Self::WorkersDeleteNothing => "a worker deletes a file of the table",
            Self::FreshNames => "a worker overwrites a file of the table",
            Self::SourceOrder => "a file goes back to an older version",
            Self::IntervalSets => "pieces that overlap double events",
            Self::WatermarkWithRows => "a derived table says that it has what it lacks",
            Self::VacuumFence => "a committer that slept adds a file that was vacuumed",
            Self::EtagPin => "rows of a file that is overwritten while it is read come under two versions",
        }
    }
}
