use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use super::*;
use crate::manifest::Counts;
use crate::name::BatchId;

fn version(etag: usize, minute: i64) -> FileVersion {
    FileVersion {
        path: "trips/a.csv".to_owned(),
        etag: etag.to_string(),
        bytes: 1,
        last_modified: DateTime::UNIX_EPOCH + TimeDelta::minutes(minute),
        sequencer: None,
    }
}

fn row(source: &FileVersion, content: &str, status: Status) -> LedgerRow {
    LedgerRow {
        table: None,
        table_id: None,
        batch_id: BatchId::of_file("t", &source.path, &source.etag),
        source: source.clone().into(),
        sha256: Some(content.to_owned()),
        status,
        reason: None,
        counts: Counts::default(),
        contract_hash: None,
        txn: None,
        attempts: 1,
        first_seen: DateTime::<Utc>::UNIX_EPOCH,
        settled_at: DateTime::<Utc>::UNIX_EPOCH,
    }
}

/// Contents A, B, ... of versions 0, 1, ... staged and planned in slices; gives the content that stands in the end.
fn play(contents: &[char], minutes: &[i64], slices: &[Vec<usize>]) -> char {
    let versions: Vec<FileVersion> = minutes.iter().enumerate().map(|(etag, minute)| version(etag, *minute)).collect();
    let landed = (versions.len() - 1).to_string();
    let mut ledger: Vec<LedgerRow> = Vec::new();
    let mut shown = None;
    for slice in slices {
        let texts: Vec<String> = slice.iter().map(|etag| contents[*etag].to_string()).collect();
        let candidates: Vec<Candidate<'_>> = slice
            .iter()
            .zip(&texts)
            .map(|(etag, text)| Candidate { source: &versions[*etag], sha256: Some(text), found: Status::Loaded })
            .collect();
        let standing: Vec<&LedgerRow> = ledger.iter().filter(|row| row.status.stands()).collect();
        let decisions = judge(OnOverwrite::Replace, &candidates, &standing, Some(&landed));
        let loaded = decisions.iter().filter(|decision| decision.status == Status::Loaded).count();
        assert!(loaded <= 1, "two versions of one path in one commit");
        for (position, decision) in decisions.iter().enumerate() {
            if decision.status == Status::Loaded {
                shown = Some(contents[slice[position]]);
            }
            ledger.push(row(candidates[position].source, &texts[position], decision.status));
        }
    }
    shown.unwrap()
}

#[test]
fn a_content_that_comes_back_stands_again() {
    // A, B, A; times fall; delivered 3, 1, 2.
    assert_eq!(play(&['A', 'B', 'A'], &[3, 2, 1], &[vec![2], vec![0], vec![1]]), 'A');
    assert_eq!(play(&['A', 'B'], &[3, 1], &[vec![0], vec![1]]), 'B');
    assert_eq!(play(&['A', 'A', 'B'], &[1, 2, 3], &[vec![0], vec![1], vec![2]]), 'B');
}

#[test]
fn append_takes_each_content_once() {
    let versions = [version(0, 1), version(1, 2), version(2, 3)];
    let candidates: Vec<Candidate<'_>> = versions
        .iter()
        .zip(["A", "B", "A"])
        .map(|(source, content)| Candidate { source, sha256: Some(content), found: Status::Loaded })
        .collect();
    let statuses: Vec<Status> =
        judge(OnOverwrite::Append, &candidates, &[], None).into_iter().map(|decision| decision.status).collect();
    assert_eq!(statuses, [Status::Loaded, Status::Loaded, Status::Duplicate]);
}

#[test]
fn ignore_keeps_the_oldest_of_a_plan_for_ever() {
    let versions = [version(0, 5), version(1, 2)];
    let candidates: Vec<Candidate<'_>> =
        versions.iter().map(|source| Candidate { source, sha256: Some("A"), found: Status::Loaded }).collect();
    let statuses: Vec<Status> =
        judge(OnOverwrite::Ignore, &candidates, &[], None).into_iter().map(|decision| decision.status).collect();
    assert_eq!(statuses, [Status::Ignored, Status::Loaded]);
}

proptest! {
    /// Whatever the contents, times, order of arrival and slices: once all versions were planned, the table shows the
    /// content of the landing zone's last version.
    #[test]
    fn the_last_version_stands(
        contents in prop::collection::vec(prop::sample::select(vec!['A', 'B', 'C']), 1..6),
        minutes in prop::collection::vec(0_i64..4, 6),
        seed in any::<u64>(),
        cut in 1_usize..4,
    ) {
        let mut arrival: Vec<usize> = (0..contents.len()).collect();
        let mut state = seed;
        for position in (1..arrival.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            arrival.swap(position, (state >> 33) as usize % (position + 1));
        }
        let slices: Vec<Vec<usize>> = arrival.chunks(cut).map(<[usize]>::to_vec).collect();
        let last = *contents.last().unwrap();
        prop_assert_eq!(play(&contents, &minutes[..contents.len()], &slices), last);
    }
}
