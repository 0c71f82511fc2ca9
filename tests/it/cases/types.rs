//! Texts that mean numbers, truth values, identifiers or nothing.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, UInt8Array, UInt64Array};

use super::parquet::file;
use super::run::{contract, csv, load, ndjson};

#[tokio::test]
async fn typ_01_separators_are_what_the_column_declares() {
    let content = "id;amt\n1;\"7.410,50\"\n2;\"-2,40\"\n3;\"1,234.56\"\n4;\"1.234\"\n";
    let german = "amt decimal(12,2) decimal_separator: \",\", group_separator: \".\"";
    let semicolons = |amount: &str| contract("format: csv, delimiter: \";\"", &["id int64", amount], "");
    load(&semicolons(german), &[("a.csv", content.as_bytes())]).await.is(
        &["a.csv:1 1|7410.50", "a.csv:2 2|-2.40", "a.csv:4 4|1234.00"],
        &["a.csv:3@4 amt_invalid <3;\"1,234.56\">"],
    );
    let undeclared = load(&semicolons("amt decimal(12,2)"), &[("a.csv", content.as_bytes())]).await;
    assert_eq!((undeclared.rows.len(), undeclared.refused.len()), (0, 4), "{undeclared:#?}");
    undeclared.says(&["a.csv:4 amt", "`1.234`", "more than 2 digits after the point"]);
}

#[tokio::test]
async fn typ_02_signs_of_money_are_no_digits() {
    let content = "id|amt\n1|€ 1\u{a0}200.50\n2|(15.00)\n3|1'000.00\n4|12%\n5|15.00-\n";
    let piped = contract("format: csv, delimiter: \"|\"", &["id int64", "amt decimal(12,2)"], "");
    let outcome = load(&piped, &[("a.csv", content.as_bytes())]).await;
    assert_eq!((outcome.rows.len(), outcome.refused.len()), (0, 5), "{outcome:#?}");
    outcome.says(&["a.csv:2 amt", "`(15.00)`"]);
    let grouped =
        contract("format: csv, delimiter: \"|\"", &["id int64", "amt decimal(12,2) group_separator: \"'\""], "");
    let outcome = load(&grouped, &[("a.csv", content.as_bytes())]).await;
    assert_eq!(outcome.rows, ["a.csv:3 3|1000.00"]);
}

#[tokio::test]
async fn typ_03_identifiers_keep_their_zeros() {
    let partitioned = contract("format: csv", &["zip string", "n int32"], "partition_by: [zip]");
    let outcome = load(&partitioned, &[("a.csv", b"zip,n\n00501,007\n02134,8\n")]).await;
    outcome.is(&["a.csv:1 00501|7", "a.csv:2 02134|8"], &[]);
}

#[tokio::test]
async fn typ_05_integers_never_wrap_or_clamp() {
    csv(&["n int32"], "n\n2147483647\n2147483648\n-2147483649\n99999999999999999999999\n").await.is(
        &["a.csv:1 2147483647"],
        &[
            "a.csv:2@3 n_invalid <2147483648>",
            "a.csv:3@4 n_invalid <-2147483649>",
            "a.csv:4@5 n_invalid <99999999999999999999999>",
        ],
    );
}

#[tokio::test]
async fn typ_06_digits_beyond_the_scale_follow_one_rule_on_every_path() {
    let texts = ["1.005", "1.995", "-1.005", "2.355"];
    let unscaled = Decimal128Array::from(vec![10_050_i128, 19_950, -10_050, 23_550]).with_precision_and_scale(12, 4);
    let exact: ArrayRef = Arc::new(unscaled.unwrap());
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.005, 1.995, -1.005, 2.355]));
    let lines = |quote: &str| texts.map(|text| format!("{{\"d\":{quote}{text}{quote}}}\n")).concat();
    let paths: [(&str, Vec<u8>); 5] = [
        ("csv", format!("d\n{}\n", texts.join("\n")).into_bytes()),
        ("ndjson", lines("").into_bytes()),
        ("ndjson", lines("\"").into_bytes()),
        ("parquet", file(vec![("d", exact)])),
        ("parquet", file(vec![("d", floats)])),
    ];
    for (format, content) in &paths {
        let source = format!("format: {format}");
        let refused = load(&contract(&source, &["d decimal(10,2)"], ""), &[("a", content)]).await;
        assert_eq!((refused.rows.len(), refused.refused.len()), (0, 4), "{format}: {refused:#?}");
        let rounded = load(&contract(&source, &["d decimal(10,2) rounding: half_up"], ""), &[("a", content)]).await;
        rounded.is(&["a:1 1.01", "a:2 2.00", "a:3 -1.01", "a:4 2.36"], &[]);
    }
}

#[tokio::test]
async fn typ_07_a_rounded_value_must_still_fit() {
    csv(
        &["d decimal(10,2) rounding: half_up"],
        "d\n99999999.99\n99999999.995\n123456789012345678901234567890123456789\n",
    )
    .await
    .is(
        &["a.csv:1 99999999.99"],
        &["a.csv:2@3 d_invalid <99999999.995>", "a.csv:3@4 d_invalid <123456789012345678901234567890123456789>"],
    );
}

#[tokio::test]
async fn typ_09_exponents_and_half_numbers() {
    let texts = ["1.2E+3", "4825037.2609835314269495255615E-2", "1e-400", "1e999999999", "0e0", "e5", "-.", ".5", "+3"];
    let outcome = csv(&["d decimal(12,2)"], format!("d\n{}\n", texts.join("\n"))).await;
    assert_eq!(outcome.rows, ["a.csv:1 1200.00", "a.csv:5 0.00", "a.csv:8 0.50", "a.csv:9 3.00"]);
    assert_eq!(outcome.refused.len(), 5);
    let strings: String = texts.iter().map(|text| format!("{{\"d\":\"{text}\"}}\n")).collect();
    let json = ndjson(&["d decimal(12,2)"], strings).await;
    let values = |rows: &[String]| rows.iter().map(|row| row.split_once(':').unwrap().1.to_owned()).collect::<Vec<_>>();
    assert_eq!(values(&json.rows), values(&outcome.rows), "JSON strings are read like fields");
}

#[tokio::test]
async fn typ_10_only_declared_texts_mean_null() {
    let content = "cc,name,v\nNA,Null,1\n\"\",x,2\n,y,3\n\"NULL\",z,\n";
    let columns = ["cc string", "name string", "v int64"];
    csv(&columns, content).await.is(&["a.csv:1 NA|Null|1", "a.csv:2 |x|2", "a.csv:3 ∅|y|3", "a.csv:4 NULL|z|∅"], &[]);
    let declared = ["cc string null_values: [NA]", "name string", "v int64"];
    csv(&declared, content).await.is(&["a.csv:1 ∅|Null|1", "a.csv:2 |x|2", "a.csv:3 |y|3", "a.csv:4 NULL|z|∅"], &[]);
}

#[tokio::test]
async fn typ_11_booleans_are_declared_texts() {
    let content = "b,s\nTRUE,t\nno,f\n0,y\nN,n\n2,x\n\"\",q\nfaux,w\n";
    let declared =
        "b boolean true_values: [\"true\", \"yes\", \"y\", \"1\"], false_values: [\"false\", \"no\", \"n\", \"0\"]";
    let outcome = csv(&[declared, "s string"], content).await;
    assert_eq!(outcome.rows, ["a.csv:1 true|t", "a.csv:2 false|f", "a.csv:3 false|y", "a.csv:4 false|n"]);
    // An empty text in quotes is a text, and no truth value.
    let refused = ["a.csv:5@6 b_invalid <2,x>", "a.csv:6@7 b_invalid <\"\",q>", "a.csv:7@8 b_invalid <faux,w>"];
    assert_eq!(outcome.refused, refused);
}

#[tokio::test]
async fn typ_12_floats_have_nan_and_infinities_and_nothing_else_has() {
    csv(&["f float64", "d decimal(5,0)"], "f,d\n1.5,1\nNaN,2\n-Infinity,3\n1e400,4\n-0.0,5\n2,NaN\n").await.is(
        &["a.csv:1 1.5|1", "a.csv:2 NaN|2", "a.csv:3 -inf|3", "a.csv:5 -0.0|5"],
        &["a.csv:4@5 f_invalid <1e400,4>", "a.csv:6@7 d_invalid <2,NaN>"],
    );
}

#[tokio::test]
async fn typ_13_unsigned_integers_never_wrap() {
    let content = || {
        file(vec![
            ("u", Arc::new(UInt64Array::from(vec![5, u64::MAX])) as ArrayRef),
            ("b", Arc::new(UInt8Array::from(vec![7, 200]))),
        ])
    };
    let outcome = load(&contract("format: parquet", &["u int64", "b int32"], ""), &[("a", &content())]).await;
    outcome.is(&["a:1 5|7"], &["a:2 u_invalid <{\"u\":18446744073709551615,\"b\":200}>"]);
    let wide = contract("format: parquet", &["u decimal(20,0)", "b int32"], "");
    load(&wide, &[("a", &content())]).await.is(&["a:1 5|7", "a:2 18446744073709551615|200"], &[]);
}

#[tokio::test]
async fn typ_14_blanks_signs_and_look_alikes_around_numbers() {
    let texts = [" 42 ", "+42", "1_000", "0x1F", "４２", "4\u{202f}200"];
    let fields = csv(&["n int64"], format!("n\n{}\n", texts.join("\n"))).await;
    assert_eq!(
        (fields.rows.as_slice(), fields.refused.len()),
        (&["a.csv:1 42".to_owned(), "a.csv:2 42".to_owned()][..], 4)
    );
    let strings: String = texts.iter().map(|text| format!("{{\"n\":\"{text}\"}}\n")).collect();
    let json = ndjson(&["n int64"], strings).await;
    assert_eq!(
        (json.rows.as_slice(), json.refused.len()),
        (&["a.ndjson:1 42".to_owned(), "a.ndjson:2 42".to_owned()][..], 4)
    );
}

#[tokio::test]
async fn typ_15_only_whole_numbers_become_integers() {
    let outcome = ndjson(&["n int64"], "{\"n\":3.0}\n{\"n\":3.5}\n{\"n\":9007199254740993.0}\n{\"n\":1e19}\n").await;
    outcome.is(
        &["a.ndjson:1 3", "a.ndjson:3 9007199254740993"],
        &["a.ndjson:2@2 n_invalid <{\"n\":3.5}>", "a.ndjson:4@4 n_invalid <{\"n\":1e19}>"],
    );
}
