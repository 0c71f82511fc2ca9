//! Alluvium.
pub mod cast;
pub mod catalog;
pub mod clock;
pub mod decode;
pub mod error;
pub mod landing;
pub mod layout;
pub mod manifest;
pub mod name;
pub mod pipeline;
pub mod schema;
pub mod store;
pub mod table;
