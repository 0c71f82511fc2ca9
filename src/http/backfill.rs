//! What a request for a backfill asks for. A request that is understood in part would repair everything, so whatever is not
//! known is refused.

use serde_json::Value;

use super::handlers::Steps;
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::schema::suggest::nearest;

/// A request as it came.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The query's names and values.
    pub parameters: Vec<(String, String)>,
    /// Whether it has a body.
    pub has_body: bool,
}

/// A request that the host hands over as data.
pub(super) fn asked(request: Option<&Value>) -> Asked {
    let query = request.and_then(|request| request.get("Query")?.as_object());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let parameters = query.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect();
    let body = request.and_then(|request| request.get("Body"));
    let has_body = body.is_some_and(|body| !body.is_null() && body.as_str().is_none_or(|text| !text.trim().is_empty()));
    Asked { parameters, has_body }
}

/// The table that a request names; none when it asks for all of them. The inner error is the request's own fault.
///
/// # Errors
/// The tables are not known.
pub(super) async fn wanted(steps: &dyn Steps, asked: Asked) -> Result<Result<Option<TableName>>> {
    let text = match read(asked) {
        Ok(None) => return Ok(Ok(None)),
        Ok(Some(text)) => text,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let derived = steps.derived().await?;
    let found = derived.iter().find(|table| table.to_string() == text || table.to_string().replace('/', ".") == text);
    Ok(found.cloned().map(Some).ok_or_else(|| {
        let names: Vec<String> = derived.iter().map(ToString::to_string).collect();
        let remedy = match nearest(&text.replace('.', "/"), names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("derived tables are: {}", names.join(", ")),
        };
        Error::invalid(format!("no contract declares a derived table `{text}`")).remedy(remedy)
    }))
}

fn read(asked: Asked) -> Result<Option<String>> {
    const REMEDY: &str = "name one derived table as `?table=LAYER/NAME`, or nothing for all of them";
    if asked.has_body {
        return Err(Error::invalid("a backfill takes no body").remedy(REMEDY));
    }
    // A function's key may be in the query, where the Functions host looks for it.
    let parameters: Vec<_> = asked.parameters.into_iter().filter(|(name, _)| name != "code").collect();
    if let Some((unknown, _)) = parameters.iter().find(|(name, _)| name != "table") {
        return Err(Error::invalid(format!("a backfill has no parameter `{unknown}`")).remedy(REMEDY));
    }
    let mut tables = parameters.into_iter().map(|(_, table)| table);
    match (tables.next(), tables.next()) {
        (Some(table), None) => Ok(Some(table)),
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Error::invalid("a backfill has one parameter `table`, not several").remedy(REMEDY)),
    }
}
