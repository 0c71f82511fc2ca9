//! The shipped contracts and functions, within the binary: the demo needs no other file.

use std::fs;
use std::path::Path;

use crate::cli::context::Context;
use crate::cli::host::Storage;
use crate::config::Config;
use crate::error::{Error, Result};

/// The shipped contracts, by their paths.
pub const CONTRACTS: [(&str, &str); 13] = [
    ("raw/trips.yaml", include_str!("../../../schemas/raw/trips.yaml")),
    ("raw/flights.yaml", include_str!("../../../schemas/raw/flights.yaml")),
    ("aggregate/trips.yaml", include_str!("../../../schemas/aggregate/trips.yaml")),
    ("curated/trips_daily.yaml", include_str!("../../../schemas/curated/trips_daily.yaml")),
    ("bronze/shop.yaml", include_str!("../../../schemas/bronze/shop.yaml")),
    ("silver/customers.yaml", include_str!("../../../schemas/silver/customers.yaml")),
    ("silver/products.yaml", include_str!("../../../schemas/silver/products.yaml")),
    ("silver/orders.yaml", include_str!("../../../schemas/silver/orders.yaml")),
    ("silver/order_items.yaml", include_str!("../../../schemas/silver/order_items.yaml")),
    ("gold/daily_revenue.yaml", include_str!("../../../schemas/gold/daily_revenue.yaml")),
    ("gold/product_ranks.yaml", include_str!("../../../schemas/gold/product_ranks.yaml")),
    ("gold/customer_ltv.yaml", include_str!("../../../schemas/gold/customer_ltv.yaml")),
    ("gold/audit_order_total_mismatch.yaml", include_str!("../../../schemas/gold/audit_order_total_mismatch.yaml")),
];

/// The host's settings and the functions' bindings, by their paths.
pub const HOST: [(&str, &str); 11] = [
    ("host.json", include_str!("../../../host.json")),
    ("functions/backfill/function.json", include_str!("../../../functions/backfill/function.json")),
    ("functions/backfill_now/function.json", include_str!("../../../functions/backfill_now/function.json")),
    ("functions/cdc_eventhubs/function.json", include_str!("../../../functions/cdc_eventhubs/function.json")),
    ("functions/cdc_kafka/function.json", include_str!("../../../functions/cdc_kafka/function.json")),
    ("functions/commit/function.json", include_str!("../../../functions/commit/function.json")),
    ("functions/ingest/function.json", include_str!("../../../functions/ingest/function.json")),
    ("functions/maintain/function.json", include_str!("../../../functions/maintain/function.json")),
    ("functions/poison/function.json", include_str!("../../../functions/poison/function.json")),
    ("functions/reconcile/function.json", include_str!("../../../functions/reconcile/function.json")),
    ("functions/status/function.json", include_str!("../../../functions/status/function.json")),
];

/// How long a file must rest before it has arrived: the demo renames files into place, so they are whole at once.
const ARRIVAL_HOLD_MS: &str = "50";

/// What the demo runs with.
pub struct Ready {
    /// The context, with the demo's settings.
    pub context: Context,
    /// The same configuration as a person would give it: folders as they were named.
    pub shown: Config,
}

/// The configuration of the demo. Contracts and functions that are not in the current folder are written to the home.
///
/// # Errors
/// The home cannot be written, or its name is not UTF-8.
pub fn configure(context: &Context, home: &Path) -> Result<Ready> {
    let given = &context.config;
    let wrote_schemas = !given.schemas.join("raw/trips.yaml").is_file();
    let schemas = if wrote_schemas { home.join("schemas") } else { given.schemas.clone() };
    if wrote_schemas {
        write_all(&schemas, &CONTRACTS)?;
    }
    let has_functions = given.root.join("host.json").is_file() && given.root.join("functions/ingest").is_dir();
    let root = if has_functions { given.root.clone() } else { home.to_owned() };
    if !has_functions {
        write_all(&root, &HOST)?;
    }
    let shown = |is_ours: bool, folder: &Path, ours: &Path| text(if is_ours { ours } else { folder });
    let shown = Config::from_pairs([
        ("ALLUVIUM_HOME", text(&given.home)?),
        ("ALLUVIUM_SCHEMAS", shown(wrote_schemas, &given.schemas, &given.home.join("schemas"))?),
        ("ALLUVIUM_ROOT", shown(!has_functions, &given.root, &given.home)?),
    ])?;
    // Whatever account the settings name: made-up data goes to folders, or to an Azurite of the demo's own.
    let config = Storage::Local.configure(given)?.with([
        ("ALLUVIUM_HOME", text(home)?),
        ("ALLUVIUM_SCHEMAS", text(&schemas)?),
        ("ALLUVIUM_ROOT", text(&root)?),
        ("ALLUVIUM_ARRIVAL_HOLD_MS", ARRIVAL_HOLD_MS.to_owned()),
    ])?;
    Ok(Ready { context: Context { config, clock: std::sync::Arc::clone(&context.clock) }, shown })
}

/// A path as text.
///
/// # Errors
/// It is no UTF-8.
pub fn text(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::invalid(format!("{} is no UTF-8 path", path.display())).remedy("name another folder"))
}

/// Writes files below a folder.
///
/// # Errors
/// The folder cannot be written.
pub fn write_all(folder: &Path, files: &[(&str, &str)]) -> Result<()> {
    for (path, content) in files {
        let file = folder.join(path);
        let within = |error: std::io::Error| Error::from(error).within(file.display());
        fs::create_dir_all(file.parent().unwrap_or(folder)).map_err(within)?;
        fs::write(&file, content).map_err(within)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn files(folder: &Path, below: &str, ending: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder.join(below)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                files(folder, &path, ending, found);
            } else if path.ends_with(ending) {
                found.insert(path);
            }
        }
    }

    #[test]
    fn everything_that_is_shipped_is_in_the_binary() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut shipped = BTreeSet::new();
        files(root, "schemas", ".yaml", &mut shipped);
        let embedded: BTreeSet<String> = CONTRACTS.iter().map(|(path, _)| format!("schemas/{path}")).collect();
        assert_eq!(embedded, shipped);
        let mut shipped = BTreeSet::from(["host.json".to_owned()]);
        files(root, "functions", "function.json", &mut shipped);
        let embedded: BTreeSet<String> = HOST.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, shipped);
    }
}
