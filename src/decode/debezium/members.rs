//! The members of a JSON object that are asked for, as text, read in one pass; the others are counted.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What was found of `N` names.
#[derive(Debug)]
pub(super) struct Members<'a, const N: usize> {
    found: [Option<&'a RawValue>; N],
    /// All members, asked for or not.
    pub(super) count: usize,
}

impl<'a, const N: usize> Members<'a, N> {
    /// Reads the object that `text` is.
    ///
    /// # Errors
    /// It is no JSON, no object, or has one of the names twice.
    pub(super) fn read(text: &'a str, names: &[&str; N]) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let members = json.deserialize_map(Names(names))?;
        json.end()?;
        Ok(members)
    }

    /// The text of a member, by the place of its name; none when it is absent. Null is text, too.
    pub(super) fn text(&self, at: usize) -> Option<&'a str> {
        self.found.get(at).copied().flatten().map(RawValue::get)
    }

    /// The text of a member that is neither absent nor null.
    pub(super) fn value(&self, at: usize) -> Option<&'a str> {
        self.text(at).filter(|text| *text != "null")
    }

    /// Whether it is there, null or not.
    pub(super) fn has(&self, at: usize) -> bool {
        self.text(at).is_some()
    }
}

struct Names<'n, const N: usize>(&'n [&'n str; N]);

impl<'de, const N: usize> Visitor<'de> for Names<'_, N> {
    type Value = Members<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members { found: [None; N], count: 0 };
        while let Some(name) = map.next_key_seed(Name(self.0))? {
            members.count += 1;
            let Some(at) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if members.found[at].replace(map.next_value()?).is_some() {
                return Err(A::Error::custom(format_args!("`{}` is there twice", self.0[at])));
            }
        }
        Ok(members)
    }
}

/// The place of a name among those that are asked for.
struct Name<'n, const N: usize>(&'n [&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Name<'_, N> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for Name<'_, N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| *known == name))
    }
}
