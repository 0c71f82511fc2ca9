//! `sum` and `avg` over the engine's own, fed with wider values: nothing wraps on the way, and a result that its type cannot
//! hold is refused. `min` and `max` of floats over the engine's own, fed with integers in the floats' order: the engine's
//! depend on where among its rows a NaN stands.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    Field, FieldRef, Float64Type, Int64Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, not_impl_err, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, StatisticsArgs,
};

use super::{refusal, spelled};
use crate::error::Error;

/// Decimals of up to this many digits are summed in 128 bits, which hold a million million of the greatest of them.
const NARROW_DIGITS: u8 = 26;

/// Decimals of more digits than this are not summed: 256 bits hold ten thousand million of the greatest.
const MOST_DIGITS: u8 = 66;

/// The aggregates, to be registered over the engine's.
pub(super) fn functions() -> [AggregateUDF; 4] {
    [sum_udaf(), avg_udaf(), min_udaf(), max_udaf()].map(|inner| AggregateUDF::new_from_impl(Exact { inner }))
}

/// An aggregate of the engine, exact.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    inner: Arc<AggregateUDF>,
}

/// The types on the way from the summed values to the result.
#[derive(Debug, Clone)]
struct Widths {
    /// The aggregate, for the error.
    written: String,
    /// What the engine's aggregate is given.
    wide: DataType,
    /// What it gives.
    wide_result: DataType,
    /// What the query is told.
    result: DataType,
}

impl Exact {
    /// None for types that the engine's own aggregate does not wrap.
    fn widths(&self, written: &str, summed: &DataType, result: &DataType) -> Result<Option<Widths>> {
        use DataType::{Decimal32, Decimal64, Decimal128, Decimal256, Duration, Float64, Int64, UInt64};
        if self.is_extreme() {
            let ordered = summed.is_floating().then(|| Widths {
                written: written.to_owned(),
                wide: Int64,
                wide_result: Int64,
                result: result.clone(),
            });
            return Ok(ordered);
        }
        let wide = match summed {
            Int64 | Duration(_) => Decimal128(19, 0),
            UInt64 => Decimal128(20, 0),
            // An average of decimals is wide enough as it is.
            _ if self.inner.name() != "sum" => return Ok(None),
            Decimal32(digits, scale) | Decimal64(digits, scale) => Decimal128(*digits, *scale),
            Decimal128(digits, scale) if *digits <= NARROW_DIGITS => Decimal128(*digits, *scale),
            Decimal128(digits, scale) | Decimal256(digits, scale) => Decimal256(*digits, *scale),
            _ => return Ok(None),
        };
        if *result == Float64 {
            return Ok(None);
        }
        let wide_result = self.inner.return_type(std::slice::from_ref(&wide))?;
        Ok(Some(Widths { written: written.to_owned(), wide, wide_result, result: result.clone() }))
    }
}

impl Exact {
    fn is_extreme(&self) -> bool {
        matches!(self.inner.name(), "min" | "max")
    }
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            _ if self.is_extreme() => self.inner.return_type(types),
            Some(DataType::Interval(_)) => {
                plan_err!("{} of intervals could wrap: take it of the times' difference", self.name())
            }
            Some(DataType::Decimal256(digits, _)) if *digits > MOST_DIGITS => {
                plan_err!("{} takes decimals of at most {MOST_DIGITS} digits: cast them", self.name())
            }
            _ => self.inner.return_type(types),
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(widths) = self.widths(args.name, args.expr_fields[0].data_type(), args.return_type())? else {
            return self.inner.accumulator(args);
        };
        let fields = widths.fields(args.expr_fields);
        let return_field = widths.wide_field(&args.return_field);
        let inner = self.inner.accumulator(AccumulatorArgs { return_field, expr_fields: &fields, ..args })?;
        Ok(Box::new(ExactAccumulator { inner, widths }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(widths) = self.widths(args.name, args.expr_fields[0].data_type(), args.return_type())? else {
            return self.inner.create_sliding_accumulator(args);
        };
        if args.is_distinct {
            return not_impl_err!("{}(distinct) over a window that slides", self.name());
        }
        let fields = widths.fields(args.expr_fields);
        let return_field = widths.wide_field(&args.return_field);
        let wide = AccumulatorArgs { return_field, expr_fields: &fields, ..args };
        Ok(Box::new(ExactAccumulator { inner: self.inner.create_sliding_accumulator(wide)?, widths }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let summed = args.input_fields[0].data_type();
        let Some(widths) = self.widths(args.name, summed, args.return_field.data_type())? else {
            return self.inner.state_fields(args);
        };
        let input_fields = widths.fields(args.input_fields);
        let return_field = widths.wide_field(&args.return_field);
        self.inner.state_fields(StateFieldsArgs { input_fields: &input_fields, return_field, ..args })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let Some(widths) = self.widths(args.name, args.expr_fields[0].data_type(), args.return_type())? else {
            return self.inner.create_groups_accumulator(args);
        };
        let fields = widths.fields(args.expr_fields);
        let return_field = widths.wide_field(&args.return_field);
        let wide = AccumulatorArgs { return_field, expr_fields: &fields, ..args };
        Ok(Box::new(ExactGroups { inner: self.inner.create_groups_accumulator(wide)?, widths }))
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        // Bounds of floats leave NaN out.
        if statistics.return_type.is_floating() { None } else { self.inner.value_from_stats(statistics) }
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

impl Widths {
    fn fields(&self, summed: &[FieldRef]) -> Vec<FieldRef> {
        summed.iter().map(|field| Field::new(field.name(), self.wide.clone(), field.is_nullable()).into()).collect()
    }

    fn wide_field(&self, result: &FieldRef) -> FieldRef {
        Arc::new(result.as_ref().clone().with_data_type(self.wide_result.clone()))
    }

    fn widen(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        values.iter().map(|values| Ok(self.widened(values)?)).collect()
    }

    fn widened(&self, values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        fn each<From: ArrowPrimitiveType, To: ArrowPrimitiveType>(values: &dyn Array, wide: &DataType) -> ArrayRef
        where
            To::Native: std::convert::From<From::Native>,
        {
            let wider = values.as_primitive::<From>().unary::<_, To>(To::Native::from);
            Arc::new(wider.with_data_type(wide.clone()))
        }
        let wide = &self.wide;
        Ok(match (values.data_type(), wide) {
            (DataType::Int64, _) => each::<Int64Type, Decimal128Type>(values, wide),
            (DataType::UInt64, _) => each::<UInt64Type, Decimal128Type>(values, wide),
            (DataType::Duration(_), _) => each::<Int64Type, Decimal128Type>(&cast(values, &DataType::Int64)?, wide),
            (DataType::Float64, _) => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Int64Type>(ordered)),
            (DataType::Float16 | DataType::Float32, _) => self.widened(&cast(values, &DataType::Float64)?)?,
            (DataType::Decimal32(..), _) => each::<Decimal32Type, Decimal128Type>(values, wide),
            (DataType::Decimal64(..), _) => each::<Decimal64Type, Decimal128Type>(values, wide),
            (DataType::Decimal128(..), DataType::Decimal256(..)) => {
                each::<Decimal128Type, Decimal256Type>(values, wide)
            }
            _ => Arc::clone(values),
        })
    }

    fn narrow(&self, wide: &ArrayRef) -> Result<ArrayRef> {
        self.narrowed(wide).map_err(|cause| {
            let Self { written, result, .. } = self;
            let too_big = Error::invalid(format!("`{written}` does not fit into {}", spelled(result)));
            refusal(
                match result {
                    DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) => {
                        too_big.remedy("a decimal has at most 38 digits: cast what is summed to fewer after the point")
                    }
                    _ => too_big.remedy("cast what is summed to a wider type, such as decimal(38,0)"),
                }
                .because(cause),
            )
        })
    }

    fn narrowed(&self, wide: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        Ok(match &self.result {
            DataType::Duration(_) => cast(&cast_with_options(wide, &DataType::Int64, &exact)?, &self.result)?,
            DataType::Float64 => Arc::new(wide.as_primitive::<Int64Type>().unary::<_, Float64Type>(of_ordered)),
            result if result.is_floating() => {
                let floats = wide.as_primitive::<Int64Type>().unary::<_, Float64Type>(of_ordered);
                cast(&floats, result)?
            }
            result => {
                let narrow = cast_with_options(wide, result, &exact)?;
                // Of equal types nothing was cast, and nothing looked at.
                if let DataType::Decimal128(digits, _) = result {
                    narrow.as_primitive::<Decimal128Type>().validate_decimal_precision(*digits)?;
                }
                narrow
            }
        })
    }
}

/// A float's place in an order of which every NaN is the greatest, and both zeros are one.
fn ordered(value: f64) -> i64 {
    let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// The float of a place.
fn of_ordered(place: i64) -> f64 {
    f64::from_bits((place ^ ((place >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

#[derive(Debug)]
struct ExactAccumulator {
    inner: Box<dyn Accumulator>,
    widths: Widths,
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.widths.widen(values)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.widths.widen(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let wide = self.inner.evaluate()?;
        // A window asks for each row; what fits needs no array around it.
        let fits = match (&wide, &self.widths.result) {
            (ScalarValue::Decimal128(Some(sum), _, 0), DataType::Int64) => {
                i64::try_from(*sum).ok().map(|sum| ScalarValue::Int64(Some(sum)))
            }
            (ScalarValue::Decimal128(Some(sum), _, _), DataType::Decimal128(digits, scale)) => {
                let fits = Decimal128Type::is_valid_decimal_precision(*sum, *digits);
                fits.then_some(ScalarValue::Decimal128(Some(*sum), *digits, *scale))
            }
            _ => None,
        };
        match fits {
            Some(sum) => Ok(sum),
            None => ScalarValue::try_from_array(&self.widths.narrow(&wide.to_array()?)?, 0),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

struct ExactGroups {
    inner: Box<dyn GroupsAccumulator>,
    widths: Widths,
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.inner.update_batch(&self.widths.widen(values)?, groups, filter, total)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&self.widths.widen(values)?, filter)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let wide = self.inner.evaluate(emit_to)?;
        self.widths.narrow(&wide)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}
