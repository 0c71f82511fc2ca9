//! Several versions of one path: which one stands. Pure; the rules are DESIGN section 4, step 5, and every order of the
//! checks matters (a version that falls back, a content that comes back, a clock that runs backwards).

use std::cmp::Ordering;

use crate::manifest::{FileVersion, Status};
use crate::pipeline::ledger::LedgerRow;
use crate::schema::OnOverwrite;

/// A staged version with rows (or none): a candidate to stand for its path.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// The version.
    pub source: &'a FileVersion,
    /// SHA-256 of its content.
    pub sha256: Option<&'a str>,
    /// `loaded` or `empty`, as the worker found it.
    pub found: Status,
}

/// What is decided about a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The ledger status.
    pub status: Status,
    /// Why, when it is not simply taken.
    pub reason: Option<&'static str>,
}

impl Decision {
    const fn because(status: Status, reason: &'static str) -> Self {
        Self { status, reason: Some(reason) }
    }
}

/// Orders two versions of one path, older first. The version that the landing zone has now is the newest whatever its
/// times say (they can fall); then last-modified; then sequencers if both have one.
#[must_use]
pub fn order(a: &FileVersion, b: &FileVersion, landed: Option<&str>) -> Ordering {
    if a.etag == b.etag {
        return Ordering::Equal;
    }
    if landed == Some(a.etag.as_str()) {
        return Ordering::Greater;
    }
    if landed == Some(b.etag.as_str()) {
        return Ordering::Less;
    }
    a.last_modified.cmp(&b.last_modified).then_with(|| match (&a.sequencer, &b.sequencer) {
        (Some(a), Some(b)) => a.cmp(b),
        _ => Ordering::Equal,
    })
}

/// Decides about the candidates of one path, in the order given. `standing` are the path's `loaded`, `empty` and
/// `duplicate` rows in the ledger's order; `landed` is the etag that the landing zone has now.
#[must_use]
pub fn judge(
    policy: OnOverwrite,
    candidates: &[Candidate<'_>],
    standing: &[&LedgerRow],
    landed: Option<&str>,
) -> Vec<Decision> {
    let mut decisions: Vec<Option<Decision>> = vec![None; candidates.len()];
    let mut by_age: Vec<usize> = (0..candidates.len()).collect();
    by_age.sort_by(|a, b| order(candidates[*a].source, candidates[*b].source, landed));
    match policy {
        OnOverwrite::Replace => {
            let mut newer_stands = false;
            for position in by_age.into_iter().rev() {
                let decision = replace(&candidates[position], standing, landed, newer_stands);
                newer_stands |= decision.status.stands();
                decisions[position] = Some(decision);
            }
        }
        OnOverwrite::Append => {
            let mut seen: Vec<&str> = standing.iter().filter_map(|row| row.sha256.as_deref()).collect();
            for position in by_age {
                let candidate = &candidates[position];
                let decision = match candidate.sha256 {
                    Some(content) if seen.contains(&content) => {
                        Decision::because(Status::Duplicate, "this path had the same content before")
                    }
                    _ => Decision { status: candidate.found, reason: None },
                };
                seen.extend(candidate.sha256);
                decisions[position] = Some(decision);
            }
        }
        OnOverwrite::Ignore => {
            let mut taken = !standing.is_empty();
            for position in by_age {
                decisions[position] = Some(if taken {
                    Decision::because(Status::Ignored, "on_overwrite: ignore keeps the first version")
                } else {
                    Decision { status: candidates[position].found, reason: None }
                });
                taken = true;
            }
        }
    }
    decisions.into_iter().flatten().collect()
}

/// From the newest down: older than what stands -> superseded, *before* the content is compared (A, B, A must end in A).
fn replace(candidate: &Candidate<'_>, standing: &[&LedgerRow], landed: Option<&str>, newer_stands: bool) -> Decision {
    if newer_stands {
        return Decision::because(Status::Superseded, "a newer version came in the same commit");
    }
    let Some((last, version)) = standing.last().and_then(|last| Some((last, last.source.file()?))) else {
        return Decision { status: candidate.found, reason: None };
    };
    // Undecided: the one in the ledger stays.
    if order(candidate.source, version, landed) != Ordering::Greater {
        return Decision::because(Status::Superseded, "a newer version is in the table");
    }
    if candidate.sha256.is_some() && candidate.sha256 == last.sha256.as_deref() {
        return Decision::because(Status::Duplicate, "the same content is in the table");
    }
    Decision { status: candidate.found, reason: None }
}

#[cfg(test)]
mod tests;
