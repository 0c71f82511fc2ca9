//! Reading refused records again from what quarantine keeps of them: their file need not be there any more.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Job, Read, Scope, Taking};
use crate::decode::Chunk;
use crate::decode::again::{Header, Hindrance, Kept, Rereader};
use crate::error::{Error, Result};
use crate::manifest::FileVersion;
use crate::pipeline::lake::Lake;
use crate::schema::Contract;

/// Reads the records that `kept` gives, all of one file version, and stages those that are good now, for a table that has
/// these columns.
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
    table: SchemaRef,
) -> Result<Read, Hindrance> {
    let job = Job::new(lake, contract, version, scope).map_err(Hindrance::Failed)?;
    tokio::task::spawn_blocking(move || job.stage_kept(&header, kept, &table))
        .await
        .map_err(|e| Hindrance::Failed(Error::internal(format!("{}: reading stopped", version.path)).because(e)))?
}

impl Job {
    fn stage_kept(
        &self,
        header: &Header,
        mut kept: BoxStream<'static, Result<Vec<Kept>>>,
        table: &Schema,
    ) -> Result<Read, Hindrance> {
        let mut taking = Taking::new(self)?;
        let options = taking.options();
        let most = options.chunk_bytes;
        let reader = Rereader::new(&self.contract, &self.source, header, options)?;
        while let Some(records) = self.handle.block_on(kept.next()) {
            for part in parts(&records?, most) {
                for chunk in reader.read(part)? {
                    let rows = spelled(&chunk.rows, table)?;
                    taking.take(Chunk { rows, ..chunk })?;
                }
            }
        }
        Ok(taking.finish()?)
    }
}

/// Rows whose added columns are spelled as the table spells them: in its file a record may have stood behind one that
/// spelled them otherwise.
fn spelled(rows: &RecordBatch, table: &Schema) -> Result<RecordBatch> {
    let spelled = |field: &FieldRef| {
        let name = field.name();
        let is_known = table.field_with_name(name).is_ok();
        let mut alike = table.fields().iter().filter(|known| !is_known && known.name().eq_ignore_ascii_case(name));
        match alike.next() {
            Some(known) => Arc::new(Field::clone(field).with_name(known.name())),
            None => Arc::clone(field),
        }
    };
    let fields: Vec<FieldRef> = rows.schema().fields().iter().map(spelled).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), rows.columns().to_vec())?)
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
