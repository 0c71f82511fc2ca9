//! How many rows of a derived table can have one key, as far as its plan tells.

use std::collections::BTreeSet;

use datafusion::common::Column;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};

use super::planning::{column_at, index_of};

/// How many rows have one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowsOfKey {
    /// One: the rows are grouped by nothing else.
    One,
    /// As many as rows of the input have these columns alike.
    OfInput(Vec<String>),
    /// Several, for this reason.
    Several(String),
    /// The plan does not tell.
    Unknown,
}

/// Looks for what makes the columns `key` of an optimized plan a key.
pub(super) fn rows_of_key(plan: &LogicalPlan, key: &[String]) -> RowsOfKey {
    let mut columns = BTreeSet::new();
    for name in key {
        let Some(index) = index_of(plan.schema(), name) else { return RowsOfKey::Unknown };
        columns.insert(index);
    }
    node(plan, columns)
}

/// `key`: the places of the key's columns among those of the plan, as far as they are columns there.
fn node(plan: &LogicalPlan, key: BTreeSet<usize>) -> RowsOfKey {
    let place = |expr: &Expr, below: &LogicalPlan| match expr.clone().unalias_nested().data {
        Expr::Column(column) => below.schema().maybe_index_of_column(&column),
        _ => None,
    };
    match plan {
        LogicalPlan::Projection(projection) => {
            let below = key.iter().filter_map(|at| place(&projection.expr[*at], &projection.input)).collect();
            node(&projection.input, below)
        }
        LogicalPlan::SubqueryAlias(alias) => node(&alias.input, key),
        LogicalPlan::Filter(filter) => node(&filter.input, key),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => node(&sort.input, key),
        LogicalPlan::Aggregate(aggregate) => {
            if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
                return RowsOfKey::Unknown;
            }
            match (0..aggregate.group_expr.len()).find(|at| !key.contains(at)) {
                None => RowsOfKey::One,
                Some(at) => {
                    RowsOfKey::Several(format!("it is grouped by {} too", shown(&column_at(&aggregate.schema, at))))
                }
            }
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            match (0..input.schema().fields().len()).find(|at| !key.contains(at)) {
                None => RowsOfKey::One,
                Some(at) => {
                    RowsOfKey::Several(format!("DISTINCT looks at {} too", shown(&column_at(input.schema(), at))))
                }
            }
        }
        LogicalPlan::TableScan(scan) => {
            let fields = scan.projected_schema.fields();
            RowsOfKey::OfInput(key.iter().map(|at| fields[*at].name().clone()).collect())
        }
        _ => RowsOfKey::Unknown,
    }
}

fn shown(column: &Column) -> String {
    format!("`{}`", column.name)
}
