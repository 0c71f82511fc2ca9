//! SQL that a derived table may not use: what differs from run to run, and what depends on the order of arrival.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Volatility, WindowFunctionDefinition};

/// Functions whose result depends on the order of the rows that they are given.
const ORDERED: [&str; 11] = [
    "array_agg",
    "string_agg",
    "first_value",
    "last_value",
    "nth_value",
    "row_number",
    "lag",
    "lead",
    "ntile",
    "percent_rank",
    "cume_dist",
];

/// The first thing of a plan (as it is written, not optimized) that a derived table may not use; none when all is well.
#[must_use]
pub(super) fn unrepeatable(plan: &LogicalPlan) -> Option<String> {
    let mut found = None;
    let walked = plan.apply_with_subqueries(|node| {
        found = found.take().or_else(|| unrepeatable_node(node));
        if found.is_none() {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    found = found.take().or_else(|| unrepeatable_expr(part));
                    Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
                })
            })?;
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match walked {
        Ok(_) => found,
        Err(error) => Some(error.strip_backtrace()),
    }
}

fn unrepeatable_node(node: &LogicalPlan) -> Option<String> {
    match node {
        LogicalPlan::Limit(limit) if !is_sorted(&limit.input) => {
            Some("LIMIT without ORDER BY keeps rows by their arrival".to_owned())
        }
        LogicalPlan::Distinct(Distinct::On(on)) if on.sort_expr.is_none() => {
            Some("DISTINCT ON without ORDER BY keeps rows by their arrival".to_owned())
        }
        _ => None,
    }
}

fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(node) => is_sorted(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_sorted(&node.input),
        _ => false,
    }
}

fn unrepeatable_expr(expr: &Expr) -> Option<String> {
    match expr {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            Some(format!("{}() differs from run to run", call.func.name()))
        }
        Expr::AggregateFunction(call) if call.params.order_by.is_empty() && ORDERED.contains(&call.func.name()) => {
            Some(format!("{0}() without ORDER BY depends on arrival: write {0}(... order by ...)", call.func.name()))
        }
        Expr::WindowFunction(call) => unordered_window(call),
        _ => None,
    }
}

fn unordered_window(call: &WindowFunction) -> Option<String> {
    let name = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => function.name(),
        WindowFunctionDefinition::WindowUDF(function) => function.name(),
    };
    (call.params.order_by.is_empty() && ORDERED.contains(&name))
        .then(|| format!("{name}() over a window without ORDER BY depends on arrival"))
}
