//! SQL arithmetic that is exact or refused, never wrapped.
//!
//! DataFusion's integer operators and its sums wrap around, and its decimals may grow digits that their type does not have.
//! Here every `+ - * / %` and negation of integers and decimals is an operation that fails instead (`operators`), and
//! `sum` and `avg` count in a type wide enough for whatever is added, so that it is the result alone that may not fit
//! (`sums`): whether a sum is refused does not depend on the order of its rows. Floats keep the arithmetic of IEEE 754; of
//! them `min` and `max` do not depend on that order either, NaN being the greatest.

mod operators;
mod sums;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::prelude::SessionContext;

use crate::error::Error;

/// Makes all SQL of a session exact or refused.
pub fn install(context: &SessionContext) {
    context.add_analyzer_rule(Arc::new(operators::CheckOperators));
    for function in sums::functions() {
        context.register_udaf(function);
    }
}

/// One expression, planned outside a query, with its types coerced and its operators checked.
///
/// # Errors
/// Types that do not go together.
pub fn checked(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    let coerced = ExprSimplifier::new(context).coerce(expr, schema)?;
    Ok(operators::check(coerced, schema)?.data)
}

/// The refusal as the engine's error; whoever runs the query finds ours in it again.
fn refusal(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A type as contracts spell it.
fn spelled(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("decimal({precision},{scale})"),
        other => other.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests;
