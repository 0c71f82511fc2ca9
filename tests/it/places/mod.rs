//! One suite of behaviour for every place: local folders and Azurite must not be told apart by anything above them.

mod landing;
mod pipeline;
mod queue;
mod store;

/// Names that mean something to a shell, a URL, an XML text or a glob. As paths they are only letters.
pub const ODD_NAMES: [&str; 9] = [
    "sales/with space.csv",
    "sales/100%.csv",
    "sales/a%2Fb%20c.csv",
    "sales/hash#1.csv",
    "sales/plus+plus.csv",
    "sales/what?.csv",
    "sales/\u{fc}n\u{ef}c\u{f6}d\u{e9}-\u{65e5}\u{672c}-\u{1f30a}.csv",
    "sales/a&b='c'<d>.csv",
    "sales/day=2026-01-01/[x]{y}.csv",
];
