//! See `alluvium::fuzz::cast`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::cast(bytes).unwrap_or_else(|found| panic!("{found}")));
