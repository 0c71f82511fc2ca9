//! See `alluvium::fuzz::csv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::csv(bytes).unwrap_or_else(|found| panic!("{found}")));
