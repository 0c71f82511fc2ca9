//! See `alluvium::fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::json(bytes).unwrap_or_else(|found| panic!("{found}")));
