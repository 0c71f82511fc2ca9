//! Changes that rules keep out of a table of changes, in the form of refused records: what they change stands in place of a
//! value, and their place in a topic in place of a file.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};

use crate::cli::sql::{Engine, Pins};
use crate::decode::{Reason, Reject};
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::quarantine::Quarantined;

/// Reads the quarantine of a table of changes; `raw` is the column that is shown, or what stands for it.
pub(super) async fn read(lake: &Lake, table: &TableName, raw: &str) -> Result<Vec<Quarantined>> {
    let (layer, name) = (table.layer(), table.table());
    let query = format!(
        "select coalesce(topic || '/' || cast(partition as varchar), file, '') as place, coalesce(\"offset\", record) as record, \
         op || ' ' || key as change, rules, {raw} as raw from quarantine.{layer}.{name} order by place, record"
    );
    let mut rows = Vec::new();
    for batch in Engine::over(lake, Pins::default())?.rows(&query).await? {
        add(&batch, &mut rows)?;
    }
    Ok(rows)
}

fn add(batch: &RecordBatch, rows: &mut Vec<Quarantined>) -> Result<()> {
    let column = |name: &str, data_type: &DataType| {
        let found = batch.column_by_name(name);
        let found = found.ok_or_else(|| Error::corrupt(format!("quarantine: column `{name}` is missing")))?;
        cast(found, data_type).map_err(|error| Error::corrupt(format!("quarantine: column `{name}`")).because(error))
    };
    let names = DataType::new_list(DataType::Utf8, true);
    let (place, record, change) =
        (column("place", &DataType::Utf8)?, column("record", &DataType::Int64)?, column("change", &DataType::Utf8)?);
    let (rules, raw) = (column("rules", &names)?, column("raw", &DataType::Binary)?);
    let (place, change, raw) = (place.as_string::<i32>(), change.as_string::<i32>(), raw.as_binary::<i32>());
    let (record, rules) = (record.as_primitive::<Int64Type>(), rules.as_list::<i32>());
    for row in 0..batch.num_rows() {
        let broken: Vec<String> = rules.value(row).as_string::<i32>().iter().flatten().map(str::to_owned).collect();
        let value = change.is_valid(row).then(|| change.value(row).to_owned());
        let reason = |rule: &String| Reason { column: None, rule: rule.clone(), value: value.clone() };
        rows.push(Quarantined {
            file: place.value(row).to_owned(),
            etag: String::new(),
            reject: Reject {
                record: record.is_valid(row).then(|| record.value(row)),
                line: None,
                byte_offset: None,
                raw: raw.value(row).to_vec(),
                reasons: broken.iter().map(reason).collect(),
                rules: broken,
            },
            batch_id: String::new(),
            contract_hash: String::new(),
            resolved: None,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Int64Array, ListBuilder, StringArray, StringBuilder};

    use super::*;

    #[test]
    fn a_change_is_shown_like_a_record() {
        let mut rules = ListBuilder::new(StringBuilder::new());
        rules.append_value([Some("price_bad"), Some("sku_missing")]);
        rules.append_value([Some("event_malformed")]);
        let batch = RecordBatch::try_from_iter([
            ("place", Arc::new(StringArray::from(vec!["lake.t/0", "shop/a.ndjson"])) as ArrayRef),
            ("record", Arc::new(Int64Array::from(vec![7, 3]))),
            ("change", Arc::new(StringArray::from(vec![Some("u {\"id\":1}"), None]))),
            ("rules", Arc::new(rules.finish())),
            ("raw", Arc::new(BinaryArray::from_vec(vec![b"{}", b"x"]))),
        ])
        .unwrap();
        let mut rows = Vec::new();
        add(&batch, &mut rows).unwrap();
        let shown: Vec<String> = rows
            .iter()
            .map(|row| {
                let reasons: Vec<String> = row.reject.reasons.iter().map(super::super::reason_text).collect();
                format!("{} {:?} {} {}", row.file, row.reject.record, reasons.join("; "), row.reject.raw.len())
            })
            .collect();
        assert_eq!(
            shown,
            [
                "lake.t/0 Some(7) price_bad u {\"id\":1}; sku_missing u {\"id\":1} 2",
                "shop/a.ndjson Some(3) event_malformed 1",
            ]
        );
    }
}
