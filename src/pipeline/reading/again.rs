//! Reading refused records again from what quarantine keeps of them: their file need not be there any more.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

use super::{Job, Read, Scope, Taking};
use crate::decode::again::{Header, Hindrance, Kept, Rereader};
use crate::error::{Error, Result};
use crate::manifest::FileVersion;
use crate::pipeline::lake::Lake;
use crate::schema::Contract;

/// Reads the records that `kept` gives, all of one file version, and stages those that are good now.
///
/// # Errors
/// What is in the way of reading them, or of staging them.
pub async fn read_kept(
    lake: &Lake,
    contract: &Arc<Contract>,
    version: &FileVersion,
    scope: Scope,
    header: Header,
    kept: BoxStream<'static, Result<Vec<Kept>>>,
) -> Result<Read, Hindrance> {
    let not_fed = || Hindrance::Failed(Error::internal(format!("{}: not fed by files", contract.table)));
    let source = contract.files().cloned().ok_or_else(not_fed)?;
    let job = Job {
        lake: lake.clone(),
        contract: Arc::clone(contract),
        source,
        version: version.clone(),
        scope,
        handle: Handle::current(),
    };
    tokio::task::spawn_blocking(move || job.stage_kept(&header, kept))
        .await
        .map_err(|e| Hindrance::Failed(Error::internal(format!("{}: reading stopped", version.path)).because(e)))?
}

impl Job {
    fn stage_kept(&self, header: &Header, mut kept: BoxStream<'static, Result<Vec<Kept>>>) -> Result<Read, Hindrance> {
        let mut taking = Taking::new(self)?;
        let options = taking.options();
        let most = options.chunk_bytes;
        let reader = Rereader::new(&self.contract, &self.source, header, options)?;
        while let Some(records) = self.handle.block_on(kept.next()) {
            for part in parts(&records?, most) {
                for chunk in reader.read(part)? {
                    taking.take(chunk)?;
                }
            }
        }
        Ok(taking.finish()?)
    }
}

/// Cuts records into parts of about `most` bytes.
fn parts(records: &[Kept], most: usize) -> impl Iterator<Item = &[Kept]> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |record: &&Kept| {
            let is_first = bytes == 0;
            bytes += record.raw.len() + 1;
            is_first || bytes <= most
        };
        let count = rest.iter().take_while(fits).count();
        let (part, behind) = rest.split_at(count);
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}
