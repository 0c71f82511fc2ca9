//! The habits that a compiler does not check: size and head of files, floors, where crates are named, and that the
//! repository's parts (functions, settings, documents, fixtures) agree with each other.

mod floors;
mod repository;
mod sources;
