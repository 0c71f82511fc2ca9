//! Whether a derived table may be recomputed unit by unit, and how a row of its input tells the units that it touches.
//!
//! Let u be the unit columns of the output. The proof walks the optimized plan from its root to the scans of the input
//! and carries u along as expressions over each node's columns. A node is sound when its rows of one unit depend only
//! on the input rows of that unit: grouping, DISTINCT, windows and joins must have u among their keys. What arrives at
//! a scan is a scalar expression over one input row, the map from a row to its unit.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, Join, LogicalPlan, Union, Unnest, Window};

use super::planning::{column_at, index_of};

/// The unit of one input row: one expression for each unit column, over unqualified columns of the input.
pub type UnitMap = Vec<Expr>;

/// Traces the unit columns `names` of an optimized plan to the scans of the tables `inputs`.
///
/// # Errors
/// The clause that keeps the units from being independent, and the column that it lacks.
pub(super) fn unit_maps(plan: &LogicalPlan, names: &[String], inputs: &[String]) -> Result<Vec<UnitMap>, String> {
    let mut units = Vec::with_capacity(names.len());
    for name in names {
        let index = index_of(plan.schema(), name).ok_or_else(|| format!("the SQL gives no column `{name}`"))?;
        units.push(Expr::Column(column_at(plan.schema(), index)));
    }
    let mut proof = Proof { names, inputs, maps: Vec::new() };
    proof.node(plan, units)?;
    Ok(proof.maps)
}

/// Whether every operator treats each input row by itself (projections, filters and unnests over one scan).
#[must_use]
pub(super) fn is_row_by_row(plan: &LogicalPlan) -> bool {
    if holds_subquery(plan) {
        return false;
    }
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::Projection(node) => is_row_by_row(&node.input),
        LogicalPlan::Filter(node) => is_row_by_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_row_by_row(&node.input),
        LogicalPlan::Unnest(node) => is_row_by_row(&node.input),
        LogicalPlan::Sort(node) => node.fetch.is_none() && is_row_by_row(&node.input),
        _ => false,
    }
}

struct Proof<'a> {
    names: &'a [String],
    inputs: &'a [String],
    maps: Vec<UnitMap>,
}

type Step = Result<(), String>;

impl Proof<'_> {
    fn node(&mut self, plan: &LogicalPlan, units: Vec<Expr>) -> Step {
        if !reads(plan, self.inputs) {
            return Ok(());
        }
        if holds_subquery(plan) {
            return Err("a subquery reads rows of every unit".to_owned());
        }
        match plan {
            LogicalPlan::TableScan(scan) => {
                if scan.fetch.is_some() {
                    return Err(limit());
                }
                let map: Vec<Expr> = units.into_iter().map(unqualified).collect();
                if !map.iter().any(Expr::any_column_refs) {
                    return Err(format!("{} is the same for every row", self.list(0..self.names.len())));
                }
                if !self.maps.contains(&map) {
                    self.maps.push(map);
                }
                Ok(())
            }
            LogicalPlan::Projection(node) => {
                let below = self.through(units, &node.schema, |index| Ok(node.expr[index].clone()))?;
                self.node(&node.input, below)
            }
            LogicalPlan::SubqueryAlias(node) => {
                let below = self.by_position(units, &node.schema, node.input.schema())?;
                self.node(&node.input, below)
            }
            LogicalPlan::Filter(node) => self.node(&node.input, units),
            LogicalPlan::Repartition(node) => self.node(&node.input, units),
            LogicalPlan::Sort(node) if node.fetch.is_none() => self.node(&node.input, units),
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => Err(limit()),
            LogicalPlan::Distinct(Distinct::All(input)) => self.node(input, units),
            LogicalPlan::Distinct(Distinct::On(node)) => {
                let below = self.through(units, &node.schema, |index| Ok(node.select_expr[index].clone()))?;
                self.needs("DISTINCT ON", &below, &node.on_expr)?;
                self.node(&node.input, below)
            }
            LogicalPlan::Aggregate(node) => self.aggregate(node, units),
            LogicalPlan::Window(node) => self.window(node, units),
            LogicalPlan::Union(node) => self.union(node, &units),
            LogicalPlan::Join(node) => self.join(node, units),
            LogicalPlan::Unnest(node) => self.unnest(node, units),
            other => Err(format!("{} is not understood", other.display())),
        }
    }

    fn aggregate(&mut self, node: &Aggregate, units: Vec<Expr>) -> Step {
        if node.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return Err("GROUPING SETS, ROLLUP and CUBE make rows of many units".to_owned());
        }
        if node.group_expr.is_empty() {
            return Err(format!("an aggregate without GROUP BY {}", self.list(0..self.names.len())));
        }
        let mut below = Vec::with_capacity(units.len());
        for (at, unit) in units.into_iter().enumerate() {
            below.push(substitute(unit, &node.schema, &|index| {
                node.group_expr
                    .get(index)
                    .cloned()
                    .ok_or_else(|| format!("`{}` is the result of an aggregate and not in GROUP BY", self.names[at]))
            })?);
        }
        self.needs("GROUP BY", &below, &node.group_expr)?;
        self.node(&node.input, below)
    }

    fn window(&mut self, node: &Window, units: Vec<Expr>) -> Step {
        let input_schema = node.input.schema();
        let below = self.through(units, &node.schema, |index| {
            if index < input_schema.fields().len() {
                return Ok(Expr::Column(column_at(input_schema, index)));
            }
            Err("it is the result of a window function".to_owned())
        })?;
        for expr in &node.window_expr {
            let Expr::WindowFunction(function) = expr.clone().unalias() else {
                return Err("a window function is not understood".to_owned());
            };
            self.needs("PARTITION BY", &below, &function.params.partition_by)?;
        }
        self.node(&node.input, below)
    }

    fn union(&mut self, node: &Union, units: &[Expr]) -> Step {
        for input in &node.inputs {
            let below = self.by_position(units.to_vec(), &node.schema, input.schema())?;
            self.node(input, below).map_err(|reason| format!("in one part of UNION, {reason}"))?;
        }
        Ok(())
    }

    fn unnest(&mut self, node: &Unnest, units: Vec<Expr>) -> Step {
        let input_schema = node.input.schema();
        let unnested = |index: usize| {
            node.list_type_columns.iter().any(|(at, _)| *at == index) || node.struct_type_columns.contains(&index)
        };
        let below = self.through(units, &node.schema, |index| match node.dependency_indices.get(index) {
            Some(&from) if !unnested(from) => Ok(Expr::Column(column_at(input_schema, from))),
            _ => Err("it comes out of UNNEST, so that one row has many units".to_owned()),
        })?;
        self.node(&node.input, below)
    }

    fn join(&mut self, node: &Join, units: Vec<Expr>) -> Step {
        let (reads_left, reads_right) = (reads(&node.left, self.inputs), reads(&node.right, self.inputs));
        if node.null_aware && reads_right {
            return Err("NOT IN (subquery) depends on every row of the subquery; write NOT EXISTS".to_owned());
        }
        if node.join_type == JoinType::Full && reads_left && reads_right {
            return Err("a FULL JOIN makes rows whose unit is of one side only".to_owned());
        }
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = node.on.iter().cloned().unzip();
        let (mut left_units, mut right_units) = (Vec::new(), Vec::new());
        for (at, unit) in units.into_iter().enumerate() {
            let of_left = only_of(&unit, node.left.schema());
            let of_right = !of_left && only_of(&unit, node.right.schema());
            let name = &self.names[at];
            if !of_left && !of_right {
                return Err(format!("`{name}` is made of both sides of a join"));
            }
            let optional = match node.join_type {
                JoinType::Left => of_right,
                JoinType::Right => of_left,
                JoinType::Full => true,
                _ => false,
            };
            if optional {
                return Err(format!("`{name}` comes from the optional side of an outer join"));
            }
            let (here, there) = if of_left { (&left_keys, &right_keys) } else { (&right_keys, &left_keys) };
            let other_reads = if of_left { reads_right } else { reads_left };
            let other = across(&unit, here, there);
            if other.is_none() && other_reads {
                return Err(format!("the join has no equality on `{name}`"));
            }
            let other = other.unwrap_or_else(|| unit.clone());
            if of_left {
                left_units.push(unit);
                right_units.push(other);
            } else {
                left_units.push(other);
                right_units.push(unit);
            }
        }
        self.node(&node.left, left_units)?;
        self.node(&node.right, right_units)
    }

    /// Each unit must be a function of the keys of a clause.
    fn needs(&self, clause: &str, units: &[Expr], keys: &[Expr]) -> Step {
        let keys: Vec<Expr> = keys.iter().map(|key| key.clone().unalias()).collect();
        for (unit, name) in units.iter().zip(self.names) {
            if across(unit, &keys, &keys).is_none() {
                return Err(format!("{clause} does not contain `{name}`"));
            }
        }
        Ok(())
    }

    /// Units over a node's columns as units over its input's, with `below` giving an output column's expression.
    fn through(
        &self,
        units: Vec<Expr>,
        schema: &DFSchema,
        below: impl Fn(usize) -> Result<Expr, String>,
    ) -> Result<Vec<Expr>, String> {
        let mut out = Vec::with_capacity(units.len());
        for (unit, name) in units.into_iter().zip(self.names) {
            out.push(substitute(unit, schema, &below).map_err(|reason| format!("`{name}`: {reason}"))?);
        }
        Ok(out)
    }

    fn by_position(&self, units: Vec<Expr>, above: &DFSchema, below: &DFSchema) -> Result<Vec<Expr>, String> {
        self.through(units, above, |index| Ok(Expr::Column(column_at(below, index))))
    }

    fn list(&self, range: std::ops::Range<usize>) -> String {
        self.names[range].iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

fn limit() -> String {
    "LIMIT keeps rows by their place among the rows of every unit".to_owned()
}

/// Whether a plan reads one of the tables.
fn reads(plan: &LogicalPlan, tables: &[String]) -> bool {
    plan.exists(|node| {
        let scans = matches!(node, LogicalPlan::TableScan(scan)
            if tables.iter().any(|table| table == scan.table_name.table()));
        Ok(scans || holds_subquery(node))
    })
    .unwrap_or(true)
}

/// Whether one of the node's own expressions still holds a subquery.
fn holds_subquery(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_expressions(|expr| {
        found |= expr.exists(|part| {
            Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)))
        })?;
        Ok(TreeNodeRecursion::Continue)
    });
    found || walked.is_err()
}

fn only_of(expr: &Expr, schema: &DFSchema) -> bool {
    expr.column_refs().into_iter().all(|column| schema.maybe_index_of_column(column).is_some())
}

/// Replaces each column by what `below` gives for its index in `schema`.
fn substitute(expr: Expr, schema: &DFSchema, below: &dyn Fn(usize) -> Result<Expr, String>) -> Result<Expr, String> {
    let mut refusal = None;
    let replaced = expr.transform_up(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        let found = schema
            .maybe_index_of_column(column)
            .ok_or_else(|| format!("column `{}` cannot be traced", column.name))
            .and_then(below);
        match found {
            Ok(found) => Ok(Transformed::yes(found.unalias_nested().data)),
            Err(reason) => {
                refusal.get_or_insert(reason);
                Ok(Transformed::no(part))
            }
        }
    });
    let replaced = replaced.data().map_err(|error| error.strip_backtrace())?;
    match refusal {
        Some(reason) => Err(reason),
        None => Ok(replaced.unalias_nested().data),
    }
}

/// An expression that is a function of `keys`, with each key replaced by its partner in `partners`; none when it also
/// needs something else.
fn across(expr: &Expr, keys: &[Expr], partners: &[Expr]) -> Option<Expr> {
    let mut stuck = false;
    let replaced = expr.clone().transform_down(|part| {
        if let Some(at) = keys.iter().position(|key| *key == part) {
            return Ok(Transformed::new(partners[at].clone(), true, TreeNodeRecursion::Jump));
        }
        stuck |= matches!(part, Expr::Column(_));
        Ok(Transformed::no(part))
    });
    match replaced {
        Ok(replaced) if !stuck => Some(replaced.data),
        _ => None,
    }
}

fn unqualified(expr: Expr) -> Expr {
    let plain = expr.clone().transform_up(|part| match part {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))),
        other => Ok(Transformed::no(other)),
    });
    plain.data().unwrap_or(expr)
}
