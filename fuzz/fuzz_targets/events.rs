//! See `alluvium::fuzz::events`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::events(bytes).unwrap_or_else(|found| panic!("{found}")));
