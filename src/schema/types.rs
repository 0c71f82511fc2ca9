//! The names of types, both ways.

use std::fmt;

use super::model::ColumnType;
use super::suggest;

/// Names of the types that take no parameters.
pub const SCALAR_NAMES: [&str; 13] = [
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal",
];

// What other systems call our types: not taken, but suggested.
const FOREIGN_NAMES: [(&str, &str); 22] = [
    ("integer", "int32"),
    ("tinyint", "int8"),
    ("byte", "int8"),
    ("smallint", "int16"),
    ("short", "int16"),
    ("bigint", "int64"),
    ("number", "int64"),
    ("uint8", "int16"),
    ("uint16", "int32"),
    ("uint32", "int64"),
    ("float", "float32"),
    ("real", "float32"),
    ("text", "string"),
    ("str", "string"),
    ("varchar", "string"),
    ("utf8", "string"),
    ("bytes", "binary"),
    ("datetime", "timestamp"),
    ("timestamptz", "timestamp"),
    ("numeric", "decimal(p,s)"),
    ("array", "list<T>"),
    ("object", "struct<a:T>"),
];

/// A type that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeError {
    /// Characters before the place, from 0.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

impl ColumnType {
    /// Reads a type as contracts write it: `int64`, `decimal(10,2)`, `list<struct<a:string,b:map<string,int32>>>`.
    ///
    /// # Errors
    /// The place in the text, what is wrong, and what was probably meant.
    pub fn parse(text: &str) -> Result<Self, TypeError> {
        let mut parser = Parser { characters: text.chars().collect(), next: 0 };
        let data_type = parser.data_type()?;
        parser.skip_blanks();
        if parser.next < parser.characters.len() {
            return Err(parser.fail(parser.next, "text after the end of the type", None));
        }
        Ok(data_type)
    }

    /// Whether values of the type are made of other values.
    #[must_use]
    pub const fn is_nested(&self) -> bool {
        matches!(self, Self::List(_) | Self::Struct(_) | Self::Map(..))
    }

    /// Whether the type, or one that its values are made of, is what is asked for.
    #[must_use]
    pub fn holds(&self, wanted: &impl Fn(&Self) -> bool) -> bool {
        match self {
            Self::List(item) => item.holds(wanted),
            Self::Struct(fields) => fields.iter().any(|(_, field)| field.holds(wanted)),
            Self::Map(key, value) => key.holds(wanted) || value.holds(wanted),
            leaf => wanted(leaf),
        }
    }

    /// Whether a table may be partitioned by the type: scalars whose text form is exact.
    #[must_use]
    pub const fn can_partition(&self) -> bool {
        !self.is_nested() && !matches!(self, Self::Float32 | Self::Float64 | Self::Binary)
    }

    /// Whether the type is a number.
    #[must_use]
    pub const fn is_number(&self) -> bool {
        self.is_integer() || matches!(self, Self::Float32 | Self::Float64 | Self::Decimal(..))
    }

    /// Whether the type is an integer.
    #[must_use]
    pub const fn is_integer(&self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }

    /// Whether the type is a day or a time.
    #[must_use]
    pub const fn is_temporal(&self) -> bool {
        matches!(self, Self::Date | Self::Timestamp | Self::TimestampNtz)
    }
}

/// The type as contracts write it.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int8 => f.write_str("int8"),
            Self::Int16 => f.write_str("int16"),
            Self::Int32 => f.write_str("int32"),
            Self::Int64 => f.write_str("int64"),
            Self::Float32 => f.write_str("float32"),
            Self::Float64 => f.write_str("float64"),
            Self::Decimal(precision, scale) => write!(f, "decimal({precision},{scale})"),
            Self::String => f.write_str("string"),
            Self::Binary => f.write_str("binary"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::TimestampNtz => f.write_str("timestamp_ntz"),
            Self::List(item) => write!(f, "list<{item}>"),
            Self::Map(key, value) => write!(f, "map<{key},{value}>"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (index, (name, data_type)) in fields.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    if name.chars().all(is_plain) && !name.is_empty() {
                        write!(f, "{comma}{name}:{data_type}")?;
                    } else {
                        write!(f, "{comma}`{}`:{data_type}", name.replace('`', "``"))?;
                    }
                }
                f.write_str(">")
            }
        }
    }
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@')
}

// Deeper types are a mistake or an attack; readers of nested Parquet give up long before.
const MAX_DEPTH: usize = 32;

struct Parser {
    characters: Vec<char>,
    next: usize,
}

impl Parser {
    fn fail(&self, offset: usize, message: impl Into<String>, help: Option<String>) -> TypeError {
        TypeError { offset: offset.min(self.characters.len()), message: message.into(), help }
    }

    fn skip_blanks(&mut self) {
        while self.characters.get(self.next).is_some_and(|c| c.is_whitespace()) {
            self.next += 1;
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let found = self.characters.get(self.next) == Some(&wanted);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, wanted: char, help: &str) -> Result<(), TypeError> {
        if self.take(wanted) {
            return Ok(());
        }
        Err(self.fail(self.next, format!("expected `{wanted}` in the type"), Some(help.to_owned())))
    }

    fn word(&mut self) -> (usize, String) {
        self.skip_blanks();
        let start = self.next;
        while self.characters.get(self.next).is_some_and(|c| is_plain(*c)) {
            self.next += 1;
        }
        (start, self.characters[start..self.next].iter().collect())
    }

    fn data_type(&mut self) -> Result<ColumnType, TypeError> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<ColumnType, TypeError> {
        let (start, word) = self.word();
        if depth > MAX_DEPTH {
            return Err(self.fail(start, format!("types nest deeper than {MAX_DEPTH}"), None));
        }
        let data_type = match word.to_ascii_lowercase().as_str() {
            "boolean" | "bool" => ColumnType::Boolean,
            "int8" => ColumnType::Int8,
            "int16" => ColumnType::Int16,
            "int32" | "int" => ColumnType::Int32,
            "int64" | "long" => ColumnType::Int64,
            "float32" => ColumnType::Float32,
            "float64" | "double" => ColumnType::Float64,
            "string" => ColumnType::String,
            "binary" => ColumnType::Binary,
            "date" => ColumnType::Date,
            "timestamp" => ColumnType::Timestamp,
            "timestamp_ntz" => ColumnType::TimestampNtz,
            "decimal" => return self.decimal(start),
            "list" => {
                self.expect('<', "write `list<string>`")?;
                let item = self.nested(depth + 1)?;
                self.expect('>', "write `list<string>`")?;
                return Ok(ColumnType::List(Box::new(item)));
            }
            "map" => {
                self.expect('<', "write `map<string,int64>`")?;
                let key_start = self.next;
                let key = self.nested(depth + 1)?;
                if key.is_nested() {
                    return Err(self.fail(key_start, "a map's key must be a scalar", None));
                }
                self.expect(',', "write `map<string,int64>`")?;
                let value = self.nested(depth + 1)?;
                self.expect('>', "write `map<string,int64>`")?;
                return Ok(ColumnType::Map(Box::new(key), Box::new(value)));
            }
            "struct" => return self.fields(depth),
            "" => return Err(self.fail(start, "a type is missing", Some("write a type such as `string`".to_owned()))),
            other => return Err(self.unknown(start, &word, other)),
        };
        Ok(data_type)
    }

    fn unknown(&self, start: usize, word: &str, folded: &str) -> TypeError {
        let foreign = FOREIGN_NAMES.iter().find(|(name, _)| *name == folded).map(|(_, ours)| *ours);
        let names = SCALAR_NAMES.into_iter().chain(["list", "struct", "map", "int", "long", "double", "bool"]);
        let help = foreign
            .or_else(|| suggest::nearest(word, names))
            .map(|name| format!("did you mean `{name}`?"))
            .unwrap_or_else(|| format!("types are {}, list<T>, struct<a:T> and map<K,V>", SCALAR_NAMES.join(", ")));
        self.fail(start, format!("unknown type `{word}`"), Some(help))
    }

    fn decimal(&mut self, start: usize) -> Result<ColumnType, TypeError> {
        const SHAPE: &str = "write `\"decimal(10,2)\"`, in quotes: digits in all, digits after the point";
        self.skip_blanks();
        if !self.take('(') {
            return Err(self.fail(start, "a decimal needs its digits", Some(SHAPE.to_owned())));
        }
        let (digits_start, precision) = self.word();
        let comma = self.take(',');
        let (scale_start, scale) = if comma { self.word() } else { (digits_start, "0".to_owned()) };
        self.expect(')', SHAPE)?;
        let Ok(precision @ 1..=38) = precision.parse::<u8>() else {
            return Err(self.fail(digits_start, "a decimal has 1 to 38 digits", Some(SHAPE.to_owned())));
        };
        match scale.parse::<i8>() {
            Ok(places) if places >= 0 && i16::from(places) <= i16::from(precision) => {
                Ok(ColumnType::Decimal(precision, places))
            }
            _ => Err(self.fail(
                scale_start,
                format!("digits after the point must be 0 to {precision}"),
                Some(SHAPE.to_owned()),
            )),
        }
    }

    fn fields(&mut self, depth: usize) -> Result<ColumnType, TypeError> {
        const SHAPE: &str = "write `struct<a:string,b:int64>`";
        self.expect('<', SHAPE)?;
        let mut fields: Vec<(String, ColumnType)> = Vec::new();
        loop {
            let (start, name) = self.field_name()?;
            if name.is_empty() {
                return Err(self.fail(start, "a field's name is missing", Some(SHAPE.to_owned())));
            }
            if fields.iter().any(|(other, _)| other.to_lowercase() == name.to_lowercase()) {
                return Err(self.fail(start, format!("field `{name}` occurs twice"), None));
            }
            self.expect(':', SHAPE)?;
            let data_type = self.nested(depth + 1)?;
            fields.push((name, data_type));
            if self.take(',') {
                continue;
            }
            self.expect('>', SHAPE)?;
            return Ok(ColumnType::Struct(fields));
        }
    }

    // Names of any kind may stand in backquotes, doubled within.
    fn field_name(&mut self) -> Result<(usize, String), TypeError> {
        self.skip_blanks();
        if !self.take('`') {
            return Ok(self.word());
        }
        let start = self.next - 1;
        let mut name = String::new();
        loop {
            match self.characters.get(self.next) {
                Some('`') if self.characters.get(self.next + 1) == Some(&'`') => {
                    name.push('`');
                    self.next += 2;
                }
                Some('`') => {
                    self.next += 1;
                    return Ok((start, name));
                }
                Some(c) => {
                    name.push(*c);
                    self.next += 1;
                }
                None => return Err(self.fail(start, "a backquote is not closed", None)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_and_their_other_names_are_read() {
        use ColumnType as T;
        for (text, expected) in [
            ("bool", T::Boolean),
            ("int", T::Int32),
            ("long", T::Int64),
            ("double", T::Float64),
            ("String", T::String),
            ("decimal(10,2)", T::Decimal(10, 2)),
            ("decimal( 38 , 38 )", T::Decimal(38, 38)),
            ("decimal(5)", T::Decimal(5, 0)),
            ("timestamp_ntz", T::TimestampNtz),
            (" list < int8 > ", T::List(Box::new(T::Int8))),
            ("map<string,list<date>>", T::Map(Box::new(T::String), Box::new(T::List(Box::new(T::Date))))),
            (
                "struct<a:string,`b ``c`:struct<d:long>>",
                T::Struct(vec![
                    ("a".to_owned(), T::String),
                    ("b `c".to_owned(), T::Struct(vec![("d".to_owned(), T::Int64)])),
                ]),
            ),
        ] {
            assert_eq!(ColumnType::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn mistakes_name_their_place_and_what_was_meant() {
        for (text, offset, message, help) in [
            ("in64", 0, "unknown type `in64`", Some("did you mean `int64`?")),
            ("varchar", 0, "unknown type `varchar`", Some("did you mean `string`?")),
            ("bigint", 0, "unknown type `bigint`", Some("did you mean `int64`?")),
            ("list<strng>", 5, "unknown type `strng`", Some("did you mean `string`?")),
            ("decimal(39,2)", 8, "a decimal has 1 to 38 digits", None),
            ("decimal(10,11)", 11, "digits after the point must be 0 to 10", None),
            ("decimal", 0, "a decimal needs its digits", None),
            ("decimal(10", 10, "expected `)` in the type", None),
            ("struct<a:int", 12, "expected `>` in the type", None),
            ("struct<a:int,A:int>", 13, "field `A` occurs twice", None),
            ("struct<>", 7, "a field's name is missing", None),
            ("map<list<int>,int>", 4, "a map's key must be a scalar", None),
            ("int64 x", 6, "text after the end of the type", None),
            ("", 0, "a type is missing", None),
            ("struct<`a:int>", 7, "a backquote is not closed", None),
        ] {
            let error = ColumnType::parse(text).expect_err(text);
            assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
            if help.is_some() {
                assert_eq!(error.help.as_deref(), help, "{text}");
            }
        }
        let deep = format!("{}int{}", "list<".repeat(100), ">".repeat(100));
        assert_eq!(ColumnType::parse(&deep).expect_err("deep").message, "types nest deeper than 32");
    }

    fn any_type() -> impl Strategy<Value = ColumnType> {
        let leaf = prop_oneof![
            Just(ColumnType::Boolean),
            Just(ColumnType::Int8),
            Just(ColumnType::Int64),
            Just(ColumnType::Float32),
            Just(ColumnType::Binary),
            Just(ColumnType::Timestamp),
            (1u8..=38)
                .prop_flat_map(|p| (Just(p), 0..=i8::try_from(p).unwrap_or(38)))
                .prop_map(|(p, s)| ColumnType::Decimal(p, s)),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|item| ColumnType::List(Box::new(item))),
                inner.clone().prop_map(|value| ColumnType::Map(Box::new(ColumnType::String), Box::new(value))),
                proptest::collection::btree_map("[a-z` :<>,]{1,6}", inner, 1..4)
                    .prop_map(|fields| ColumnType::Struct(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(data_type in any_type()) {
            prop_assert_eq!(ColumnType::parse(&data_type.to_string()), Ok(data_type));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,40}") {
            let _ = ColumnType::parse(&text);
        }
    }
}
