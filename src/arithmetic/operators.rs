//! `+ - * / %` and negation of integers and decimals, as functions that fail where the engine's operators wrap; and casts of
//! decimals to fewer digits, as functions that no comparison undoes.

use std::hash::{Hash, Hasher};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::kernels::numeric::{add, div, mul, neg, rem, sub};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field, FieldRef,
};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

use super::{refusal, spelled};
use crate::error::Error;

/// Replaces the operators of a plan. It runs after types are coerced and before anything is folded.
#[derive(Debug)]
pub(super) struct CheckOperators;

impl AnalyzerRule for CheckOperators {
    fn name(&self) -> &'static str {
        "check_operators"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
            }
            plan.map_expressions(|expr| check(expr, &schema))?.map_data(LogicalPlan::recompute_schema)
        })
        .data()
    }
}

/// Replaces the operators of an expression whose types are coerced. Names and types stay.
pub(super) fn check(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    // From above, so that the text of an expression is told as it was written, not with its parts replaced.
    expr.transform_down(|part| match part {
        Expr::BinaryExpr(binary) if is_arithmetic(binary.op) => {
            if !counts(&binary.left.get_type(schema)?) || !counts(&binary.right.get_type(schema)?) {
                return Ok(Transformed::no(Expr::BinaryExpr(binary)));
            }
            let operation = Operation::Binary(binary.op);
            let BinaryExpr { left, right, .. } = binary.clone();
            Ok(Transformed::yes(call(operation, &Expr::BinaryExpr(binary), vec![*left, *right])))
        }
        Expr::Negative(operand) if counts(&operand.get_type(schema)?) => {
            let operands = vec![operand.as_ref().clone()];
            Ok(Transformed::yes(call(Operation::Negative, &Expr::Negative(operand), operands)))
        }
        Expr::Cast(cast) if loses(&cast.expr.get_type(schema)?, cast.field.data_type()) => {
            let operation = Operation::Cast { to: cast.field.data_type().clone(), or_null: false };
            let operands = vec![cast.expr.as_ref().clone()];
            Ok(Transformed::yes(call(operation, &Expr::Cast(cast), operands)))
        }
        Expr::TryCast(cast) if loses(&cast.expr.get_type(schema)?, cast.field.data_type()) => {
            let operation = Operation::Cast { to: cast.field.data_type().clone(), or_null: true };
            let operands = vec![cast.expr.as_ref().clone()];
            Ok(Transformed::yes(call(operation, &Expr::TryCast(cast), operands)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Whether a cast of decimals can drop digits. The engine takes `cast(m as int) = 1` for `m = 1`, which 1.10 is not: as a
/// function a cast is left where it stands.
fn loses(from: &DataType, to: &DataType) -> bool {
    let digits = |data_type: &DataType| match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((i16::from(*precision) - i16::from(*scale), *scale)),
        _ => None,
    };
    match (digits(from), digits(to)) {
        (Some((whole, scale)), Some((to_whole, to_scale))) => to_whole < whole || to_scale < scale,
        (Some(_), None) => to.is_integer(),
        _ => false,
    }
}

fn call(operation: Operation, written: &Expr, operands: Vec<Expr>) -> Expr {
    let function = Checked {
        operation,
        written: written.human_display().to_string(),
        signature: Signature::user_defined(Volatility::Immutable),
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(ScalarUDF::new_from_impl(function).into(), operands))
}

const fn is_arithmetic(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
}

/// Whether values of a type are whole numbers of units, which overflow; times and intervals are checked by the engine.
fn counts(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Operation {
    Binary(Operator),
    Negative,
    Cast {
        to: DataType,
        /// What does not fit is null and no error.
        or_null: bool,
    },
}

/// One checked operation.
#[derive(Debug)]
struct Checked {
    operation: Operation,
    /// The expression as it was written, for the error. It does not tell functions apart: a plan that was rewritten must
    /// still find equal expressions equal.
    written: String,
    signature: Signature,
}

impl PartialEq for Checked {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

impl Eq for Checked {}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operation.hash(state);
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Binary(Operator::Plus) => "checked_add",
            Operation::Binary(Operator::Minus) => "checked_sub",
            Operation::Binary(Operator::Multiply) => "checked_mul",
            Operation::Binary(Operator::Divide) => "checked_div",
            Operation::Binary(_) => "checked_rem",
            Operation::Negative => "checked_neg",
            Operation::Cast { .. } => "checked_cast",
        }
    }

    /// The name of the operator that it replaces, so that columns are called as before.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(match (&self.operation, args) {
            (Operation::Binary(operator), [left, right]) => {
                format!("{} {operator} {}", left.schema_name(), right.schema_name())
            }
            // As the engine does: a column is called by what is cast.
            (Operation::Cast { .. }, args) => operand(args)?.schema_name().to_string(),
            _ => format!("(- {})", operand(args)?.schema_name()),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (&self.operation, types) {
            (Operation::Binary(operator), [left, right]) => {
                BinaryTypeCoercer::new(left, operator, right).get_result_type()
            }
            (Operation::Cast { to, .. }, _) => Ok(to.clone()),
            _ => operand(types).cloned(),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let may_be_null = matches!(self.operation, Operation::Cast { or_null: true, .. });
        let nullable = may_be_null || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Field::new(self.name(), self.return_type(&types)?, nullable).into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.compute(&args.args).map_err(|error| self.explained(error, args.return_field.data_type()))
    }
}

impl Checked {
    fn compute(&self, operands: &[ColumnarValue]) -> Result<ColumnarValue> {
        let (Operation::Binary(operator), [left, right]) = (&self.operation, operands) else {
            return Ok(match operand(operands)? {
                ColumnarValue::Array(array) => ColumnarValue::Array(self.of_one(array)?),
                ColumnarValue::Scalar(scalar) => {
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&self.of_one(&scalar.to_array()?)?, 0)?)
                }
            });
        };
        apply(left, right, |left, right| {
            within_digits(match operator {
                Operator::Plus => add(left, right)?,
                Operator::Minus => sub(left, right)?,
                Operator::Multiply => mul(left, right)?,
                Operator::Divide => div(left, right)?,
                _ => rem(left, right)?,
            })
        })
    }

    fn of_one(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match &self.operation {
            Operation::Cast { to, or_null } => {
                let options = CastOptions { safe: *or_null, ..CastOptions::default() };
                cast_with_options(array, to, &options)
            }
            _ => within_digits(neg(array)?),
        }
    }

    fn explained(&self, error: DataFusionError, result: &DataType) -> DataFusionError {
        let DataFusionError::ArrowError(cause, _) = error else { return error };
        if matches!(self.operation, Operation::Cast { .. }) {
            let too_big = Error::invalid(format!("`{}` does not fit into {}", self.written, spelled(result)));
            return refusal(too_big.remedy("cast to a wider type, or write try_cast, which gives null").because(cause));
        }
        let written = &self.written;
        refusal(match *cause {
            ArrowError::DivideByZero => Error::invalid(format!("`{written}` divides by zero"))
                .remedy("say what it shall be then, such as `a / nullif(b, 0)`"),
            ArrowError::ArithmeticOverflow(_) | ArrowError::InvalidArgumentError(_) => {
                let too_big = Error::invalid(format!("`{written}` does not fit into {}", spelled(result)));
                match result.is_decimal() {
                    true => too_big.remedy("a decimal has at most 38 digits: cast its operands to fewer"),
                    false => too_big.remedy("cast an operand to a wider type, such as bigint or decimal(38,0)"),
                }
                .because(cause)
            }
            other => Error::invalid(format!("`{written}` cannot be computed")).because(other),
        })
    }
}

fn operand<T>(operands: &[T]) -> Result<&T> {
    operands.first().ok_or_else(|| DataFusionError::Internal("an operation without an operand".to_owned()))
}

/// A decimal whose digits were cut to what a decimal has at most may hold a value with more; with less digits it cannot.
fn within_digits(array: ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) => {
            array.as_primitive::<Decimal128Type>().validate_decimal_precision(DECIMAL128_MAX_PRECISION)?;
        }
        DataType::Decimal256(DECIMAL256_MAX_PRECISION, _) => {
            array.as_primitive::<Decimal256Type>().validate_decimal_precision(DECIMAL256_MAX_PRECISION)?;
        }
        _ => {}
    }
    Ok(array)
}
