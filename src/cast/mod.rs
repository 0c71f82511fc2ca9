//! The one cast: a field's text or a typed value -> a value of the contract's type, or a reason.
//!
//! CSV, JSON, Parquet and change data all come through here, so the same value gives the same result on every path. A
//! value is never nulled, wrapped, clamped, cut or rounded in place of an error, unless the column declares it.
//!
//! [`ColumnCaster`] is a column's declaration, compiled once. [`ColumnSink`] is an Arrow builder with that caster:
//! every push appends exactly one row, null where the push fails.

mod bulk;
mod civil;
mod leaf;
mod nested;
mod number;
mod pattern;
mod time;
mod value;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{TimeUnit, i256};
use serde_json::value::RawValue;

/// The Arrow type that a sink builds.
pub use crate::schema::arrow::data_type as arrow_type;

use bulk::Plan;
use leaf::{Kind, Settings, trimmed, utf8};
use nested::Shape;
use value::{Builder, Value};

use crate::decode::FaultKind;
use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, Encoding};

/// Why a cell did not become a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastFault {
    /// Cast failed, or null where null is not allowed.
    pub kind: FaultKind,
    /// For people: lower case, without a full stop; the value itself is not repeated.
    pub reason: String,
}

/// A value as JSON or Parquet holds it.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<'a> {
    /// An explicit null.
    Null,
    /// true or false
    Bool(bool),
    /// The exact text of a JSON number.
    Number(&'a str),
    /// Text, unescaped.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An integer of any width, signed or not.
    Int(i128),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float(f64),
    /// `unscaled * 10^-scale`
    Decimal {
        /// All digits.
        unscaled: i256,
        /// Digits after the point.
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date(i32),
    /// Ticks since 1970-01-01T00:00:00 UTC.
    Instant {
        /// How many.
        value: i64,
        /// Of what length.
        unit: TimeUnit,
    },
    /// Ticks since 1970-01-01T00:00:00 on a wall clock without zone.
    Local {
        /// How many.
        value: i64,
        /// Of what length.
        unit: TimeUnit,
    },
    /// A JSON value for a list, struct or map column. A scalar column refuses it.
    Json(&'a RawValue),
}

/// A column's declaration, compiled: tokens lowered, formats parsed, zone found, default cast.
#[derive(Debug, Clone)]
pub struct ColumnCaster {
    rules: Arc<Rules>,
}

/// What every push of one column needs.
#[derive(Debug)]
struct Rules {
    column_type: ColumnType,
    shape: Shape,
    settings: Settings,
    nullable: bool,
    /// Unquoted field texts that mean null.
    nulls: Vec<String>,
    /// Texts of JSON strings and typed values that mean null: what the column itself declares.
    declared_nulls: Vec<String>,
    default: Option<Value<'static>>,
    plan: Plan,
}

/// An Arrow builder of a column's type with the column's caster. Every push appends exactly one row.
#[derive(Debug)]
pub struct ColumnSink {
    rules: Arc<Rules>,
    builder: Builder,
    dates: bulk::DateCache,
}

impl ColumnCaster {
    /// Compiles `column`; `file_null_values` are the null tokens of the file, used where the column declares none.
    ///
    /// # Errors
    /// Invalid: a bad format, an unknown time zone, a decimal of impossible precision, a default that is no value of
    /// the type.
    pub fn new(column: &Column, file_null_values: &[String]) -> Result<Self> {
        Self::compile(column, file_null_values, false)
    }

    /// Compiles `column` of a table of changes: its values come in the forms that connectors of databases write. Text of a
    /// binary column is base64 unless another `encoding` is declared, a decimal may bring its scale along, and the numbers
    /// and texts of infinite times are known.
    ///
    /// # Errors
    /// As [`ColumnCaster::new`].
    pub fn for_changes(column: &Column) -> Result<Self> {
        Self::compile(column, &[], true)
    }

    fn compile(column: &Column, file_null_values: &[String], is_change: bool) -> Result<Self> {
        check_type(&column.name, &column.data_type)?;
        let settings = Settings { is_change, ..Settings::new(column)? };
        let shape = Shape::new(&column.data_type);
        let nulls = column.null_values.clone().unwrap_or_else(|| file_null_values.to_vec());
        let plan = Plan::choose(&shape, column, &settings, &nulls);
        let mut rules = Rules {
            column_type: column.data_type.clone(),
            shape,
            settings,
            nullable: column.nullable,
            nulls,
            declared_nulls: column.null_values.clone().unwrap_or_default(),
            default: None,
            plan,
        };
        if let Some(text) = &column.default {
            // A contract writes numbers as everybody does, whatever stands for them in the source.
            let encoding = rules.settings.encoding.replace(Encoding::Text);
            let value = rules.value_of_text(text).map(Value::into_owned);
            rules.settings.encoding = encoding;
            let value = value.map_err(|reason| {
                Error::invalid(format!(
                    "column {}: default `{text}` is no {}: {reason}",
                    column.name,
                    rules.shape.name()
                ))
            })?;
            rules.default = Some(value);
        }
        Ok(Self { rules: Arc::new(rules) })
    }

    /// An empty sink with room for `rows`.
    #[must_use]
    pub fn begin(&self, rows: usize) -> ColumnSink {
        ColumnSink {
            rules: Arc::clone(&self.rules),
            builder: Builder::new(&self.rules.column_type, rows),
            dates: bulk::DateCache::default(),
        }
    }

    /// Whether a field that means null may be null or has a default: a file may leave the column out.
    #[must_use]
    pub fn may_be_absent(&self) -> bool {
        self.rules.nullable || self.rules.default.is_some()
    }
}

/// Refuses decimals that Arrow's 128 bits cannot hold, also inside nested types.
fn check_type(name: &str, column_type: &ColumnType) -> Result<()> {
    match column_type {
        ColumnType::Decimal(precision, scale) => {
            let whole =
                (1..=38).contains(precision) && (0..=38).contains(scale) && i16::from(*scale) <= i16::from(*precision);
            if whole {
                return Ok(());
            }
            Err(Error::invalid(format!("column {name}: decimal({precision},{scale}) does not exist"))
                .remedy("use a precision from 1 to 38 and a scale from 0 to the precision"))
        }
        ColumnType::List(element) => check_type(name, element),
        ColumnType::Struct(fields) => fields.iter().try_for_each(|(_, field)| check_type(name, field)),
        ColumnType::Map(key, value) => check_type(name, key).and_then(|()| check_type(name, value)),
        _ => Ok(()),
    }
}

fn invalid(reason: String) -> CastFault {
    CastFault { kind: FaultKind::Invalid, reason }
}

impl Rules {
    /// Casts text that is known to be a value and not a null token.
    fn value_of_text<'a>(&self, text: &'a str) -> Result<Value<'a>, String> {
        match &self.shape {
            Shape::Leaf(kind) => kind.text(text, &self.settings),
            other => Err(format!("text is no {}", other.name())),
        }
    }

    /// Null, if it is allowed.
    fn null(&self) -> Result<Value<'static>, CastFault> {
        if self.nullable {
            return Ok(Value::Null);
        }
        Err(CastFault { kind: FaultKind::Missing, reason: "null where a value is required".to_owned() })
    }

    /// A declared infinity may have become null.
    fn checked<'a>(&self, value: Result<Value<'a>, String>) -> Result<Value<'a>, CastFault> {
        match value.map_err(invalid)? {
            Value::Null => self.null(),
            value => Ok(value),
        }
    }

    fn trims(&self) -> bool {
        matches!(&self.shape, Shape::Leaf(kind) if kind.trims(&self.settings))
    }

    /// Casts a CSV field.
    fn field<'a>(&'a self, bytes: &'a [u8], quoted: bool) -> Result<Value<'a>, CastFault> {
        if let Shape::Leaf(Kind::Binary) = self.shape {
            let null = if quoted { None } else { self.null_of(&String::from_utf8_lossy(bytes)) };
            return null.unwrap_or(Ok(Value::Bytes(Cow::Borrowed(bytes))));
        }
        let text = utf8(bytes).map_err(invalid)?;
        if !quoted && let Some(null) = self.null_of(text) {
            return null;
        }
        self.checked(self.value_of_text(text))
    }

    /// What an unquoted text stands for if it is empty or a null token.
    fn null_of<'a>(&'a self, text: &str) -> Option<Result<Value<'a>, CastFault>> {
        let bare = if self.trims() { trimmed(text) } else { text };
        if bare.is_empty()
            && let Some(default) = &self.default
        {
            return Some(self.checked(Ok(default.clone())));
        }
        self.nulls.iter().any(|token| token == bare || token == text).then(|| self.null())
    }

    fn scalar<'a>(&'a self, scalar: Scalar<'a>) -> Result<Value<'a>, CastFault> {
        match (&self.shape, scalar) {
            (_, Scalar::Null) => self.null(),
            (Shape::Leaf(kind), Scalar::Text(text)) => {
                let bare = if self.trims() { trimmed(text) } else { text };
                if self.declared_nulls.iter().any(|token| token == bare || token == text) {
                    return self.null();
                }
                self.checked(kind.text(text, &self.settings))
            }
            (Shape::Leaf(kind), scalar) => self.checked(kind.scalar(scalar, &self.settings)),
            (shape, Scalar::Json(raw)) => self.checked(nested::cast(shape, raw, &self.settings, "")),
            (shape, _) => Err(invalid(format!("a scalar is no {}", shape.name()))),
        }
    }
}

impl ColumnSink {
    /// Appends a CSV field; `quoted` fields are never null.
    ///
    /// # Errors
    /// The value is none of the type, or null where that is not allowed; null was appended.
    pub fn push_text(&mut self, text: &[u8], quoted: bool) -> Result<(), CastFault> {
        append(&mut self.builder, self.rules.field(text, quoted))
    }

    /// Appends what an absent column or key stands for: the default, or null.
    ///
    /// # Errors
    /// Neither is allowed; null was appended.
    pub fn push_absent(&mut self) -> Result<(), CastFault> {
        let value = match &self.rules.default {
            Some(Value::Null) | None => self.rules.null(),
            Some(default) => return self.builder.append(default).map_err(invalid),
        };
        append(&mut self.builder, value)
    }

    /// Appends an explicit null.
    ///
    /// # Errors
    /// Null is not allowed; null was appended all the same.
    pub fn push_null(&mut self) -> Result<(), CastFault> {
        append(&mut self.builder, self.rules.null())
    }

    /// Appends a typed value.
    ///
    /// # Errors
    /// The value is none of the type, or null where that is not allowed; null was appended.
    pub fn push_scalar(&mut self, value: Scalar<'_>) -> Result<(), CastFault> {
        if let Scalar::Number(text) | Scalar::Text(text) = value
            && self.quick(text.as_bytes())
        {
            return Ok(());
        }
        append(&mut self.builder, self.rules.scalar(value))
    }

    /// The finished column, one row a push.
    ///
    /// # Errors
    /// Internal: the parts of a nested column do not fit together.
    pub fn finish(self) -> Result<ArrayRef> {
        self.builder.finish()
    }
}

/// Appends a value, or null in its place.
fn append(builder: &mut Builder, value: Result<Value<'_>, CastFault>) -> Result<(), CastFault> {
    let outcome = value.and_then(|value| builder.append(&value).map_err(invalid));
    if outcome.is_err() {
        builder.append_null();
    }
    outcome
}

#[cfg(test)]
mod tests;
