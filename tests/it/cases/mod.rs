//! What real files and queues do, and the right behaviour: every case a test through the real pipeline. [`INDEX`] says
//! which; a test keeps it whole.

mod arrival;
mod csv;
mod encoding;
mod exactly;
mod json;
mod parquet;
mod quarantine;
mod run;
mod schema;
mod times;
mod types;

use std::collections::BTreeSet;

use crate::support::root;

/// Every case: its id, the file that has its test, and the test. Each id stands here once.
const INDEX: &[(&str, &str, &str)] = &[
    ("CSV-01", "tests/it/cases/csv.rs", "csv_01_a_byte_order_mark_is_no_part_of_a_name"),
    ("CSV-03", "tests/it/cases/csv.rs", "csv_03_a_quoted_line_end_never_splits_a_record"),
    ("CSV-04", "tests/it/cases/csv.rs", "csv_04_doubled_returns_double_no_record"),
    ("CSV-05", "tests/it/cases/csv.rs", "csv_05_a_quote_within_a_field_is_text"),
    ("CSV-06", "tests/it/cases/csv.rs", "csv_06_a_quote_that_never_closes_refuses_the_file_with_its_line"),
    ("CSV-07", "tests/it/cases/csv.rs", "csv_07_ragged_rows_are_refused_one_by_one"),
    ("CSV-09", "tests/it/cases/csv.rs", "csv_09_duplicate_columns_refuse_the_file"),
    ("CSV-10", "tests/it/cases/csv.rs", "csv_10_headers_match_without_case_and_blanks_when_that_is_unique"),
    ("CSV-11", "tests/it/cases/csv.rs", "csv_11_each_file_has_its_own_order_of_columns"),
    ("CSV-12", "tests/it/cases/csv.rs", "csv_12_a_header_that_is_data_refuses_the_file"),
    ("CSV-13", "tests/it/cases/csv.rs", "csv_13_files_without_records_are_settled_as_empty"),
    ("CSV-14", "tests/it/cases/csv.rs", "csv_14_blank_lines_are_no_records_and_rows_of_nothing_are"),
    ("CSV-15", "tests/it/cases/csv.rs", "csv_15_nul_bytes_are_kept_in_text_and_refused_elsewhere"),
    ("CSV-16", "tests/it/cases/csv.rs", "csv_16_long_fields_and_wide_files"),
    ("CSV-17", "tests/it/cases/csv.rs", "csv_17_another_separator_than_declared_refuses_the_file"),
    ("CSV-18", "tests/it/cases/csv.rs", "csv_18_a_header_may_have_a_line_end"),
    ("CSV-19", "tests/it/cases/csv.rs", "csv_19_backslashes_escape_quotes_only_when_declared"),
    ("CSV-20", "tests/it/cases/csv.rs", "csv_20_preambles_repeated_headers_and_totals"),
    ("ENC-01", "tests/it/cases/encoding.rs", "enc_01_bytes_that_are_no_utf8_refuse_their_own_record"),
    ("ENC-02", "tests/it/cases/encoding.rs", "enc_02_utf_16_is_decoded_by_its_mark"),
    ("ENC-04", "tests/it/cases/encoding.rs", "enc_04_cut_streams_and_lying_names"),
    ("ENC-05", "tests/it/cases/encoding.rs", "enc_05_a_bomb_is_streamed_and_its_neighbours_go_on"),
    ("ENC-06", "tests/it/cases/encoding.rs", "enc_06_values_are_never_normalised"),
    ("TYP-01", "tests/it/cases/types.rs", "typ_01_separators_are_what_the_column_declares"),
    ("TYP-02", "tests/it/cases/types.rs", "typ_02_signs_of_money_are_no_digits"),
    ("TYP-03", "tests/it/cases/types.rs", "typ_03_identifiers_keep_their_zeros"),
    ("TYP-05", "tests/it/cases/types.rs", "typ_05_integers_never_wrap_or_clamp"),
    ("TYP-06", "tests/it/cases/types.rs", "typ_06_digits_beyond_the_scale_follow_one_rule_on_every_path"),
    ("TYP-07", "tests/it/cases/types.rs", "typ_07_a_rounded_value_must_still_fit"),
    ("TYP-09", "tests/it/cases/types.rs", "typ_09_exponents_and_half_numbers"),
    ("TYP-10", "tests/it/cases/types.rs", "typ_10_only_declared_texts_mean_null"),
    ("TYP-11", "tests/it/cases/types.rs", "typ_11_booleans_are_declared_texts"),
    ("TYP-12", "tests/it/cases/types.rs", "typ_12_floats_have_nan_and_infinities_and_nothing_else_has"),
    ("TYP-13", "tests/it/cases/types.rs", "typ_13_unsigned_integers_never_wrap"),
    ("TYP-14", "tests/it/cases/types.rs", "typ_14_blanks_signs_and_look_alikes_around_numbers"),
    ("TYP-15", "tests/it/cases/types.rs", "typ_15_only_whole_numbers_become_integers"),
    ("TIM-01", "tests/it/cases/times.rs", "tim_01_a_format_is_never_guessed"),
    ("TIM-03", "tests/it/cases/times.rs", "tim_03_offsets_count_once_and_days_are_utc"),
    ("TIM-05", "tests/it/cases/times.rs", "tim_05_nanoseconds_become_microseconds_at_every_depth"),
    ("TIM-06", "tests/it/cases/times.rs", "tim_06_int96_reaches_every_year"),
    ("TIM-07", "tests/it/cases/times.rs", "tim_07_the_unit_of_a_number_is_declared_and_not_guessed"),
    ("TIM-08", "tests/it/cases/times.rs", "tim_08_leap_seconds_and_the_end_of_a_day_are_refused"),
    ("TIM-09", "tests/it/cases/times.rs", "tim_09_the_edges_of_the_calendar"),
    ("TIM-10", "tests/it/cases/times.rs", "tim_10_years_have_four_digits_and_serial_numbers_are_no_dates"),
    ("TIM-11", "tests/it/cases/times.rs", "tim_11_naive_and_zoned_times_of_one_column"),
    ("JSN-01", "tests/it/cases/json.rs", "jsn_01_integers_keep_every_digit"),
    ("JSN-02", "tests/it/cases/json.rs", "jsn_02_types_may_change_between_lines"),
    ("JSN-03", "tests/it/cases/json.rs", "jsn_03_duplicate_keys_refuse_the_record"),
    ("JSN-04", "tests/it/cases/json.rs", "jsn_04_json_is_arrays_pretty_values_and_several_on_a_line"),
    ("JSN-05", "tests/it/cases/json.rs", "jsn_05_a_cut_last_line_is_kept_in_quarantine"),
    ("JSN-07", "tests/it/cases/json.rs", "jsn_07_missing_null_and_empty_are_three_things"),
    ("JSN-08", "tests/it/cases/json.rs", "jsn_08_what_is_no_json_refuses_its_record"),
    ("JSN-09", "tests/it/cases/json.rs", "jsn_09_an_unknown_nested_field_is_rescued"),
    ("PQT-02", "tests/it/cases/parquet.rs", "pqt_02_a_file_that_is_not_whole_is_refused_and_its_next_version_loads"),
    ("PQT-04", "tests/it/cases/parquet.rs", "pqt_04_each_file_may_have_its_own_type"),
    ("PQT-05", "tests/it/cases/parquet.rs", "pqt_05_names_that_delta_refuses_are_mapped_or_refused"),
    ("PQT-06", "tests/it/cases/parquet.rs", "pqt_06_strings_of_every_flavour_and_bytes_that_are_none"),
    ("PQT-07", "tests/it/cases/parquet.rs", "pqt_07_files_and_row_groups_without_rows"),
    ("PQT-08", "tests/it/cases/parquet.rs", "pqt_08_nulls_and_absence_in_required_columns"),
    ("SCH-01", "tests/it/cases/schema.rs", "sch_01_extra_and_missing_columns_follow_the_policy"),
    ("SCH-02", "tests/it/cases/schema.rs", "sch_02_a_value_of_another_type_is_refused_and_never_null"),
    ("SCH-03", "tests/it/cases/schema.rs", "sch_03_columns_become_wider_by_the_contract"),
    ("SCH-05", "tests/it/cases/schema.rs", "sch_05_staged_rows_are_committed_by_name_under_a_changed_contract"),
    ("SCH-06", "tests/it/cases/schema.rs", "sch_06_a_name_that_differs_by_case_is_the_same_column"),
    ("QAR-01", "tests/it/cases/quarantine.rs", "qar_01_one_bad_record_stops_nobody"),
    ("QAR-03", "tests/it/cases/quarantine.rs", "qar_03_redelivery_doubles_no_quarantine_row"),
    ("QAR-04", "tests/it/cases/quarantine.rs", "qar_04_the_record_is_kept_as_it_came_with_every_reason"),
    ("QAR-07", "tests/it/cases/quarantine.rs", "qar_07_a_file_that_is_nearly_all_bad_is_refused_whole"),
    ("QUE-01", "tests/it/cases/arrival.rs", "que_01_a_message_may_be_plain_or_base64"),
    ("QUE-02", "tests/it/cases/arrival.rs", "que_02_what_is_no_message_is_an_error_with_its_reason"),
    ("QUE-04", "tests/it/outage.rs", "que_04_a_bad_file_ends_with_its_cause_and_an_outage_costs_no_good_one"),
    ("QUE-05", "tests/it/cases/arrival.rs", "que_05_events_of_one_message_are_independent"),
    ("AZR-01", "tests/it/cases/arrival.rs", "azr_01_a_created_file_without_content_is_not_taken_for_done"),
    ("AZR-02", "tests/it/cases/arrival.rs", "azr_02_a_file_whose_closing_event_never_comes_is_found_and_counts_once"),
    ("AZR-04", "tests/it/cases/arrival.rs", "azr_04_a_late_event_of_an_old_version_is_superseded"),
    ("AZR-05", "tests/it/cases/arrival.rs", "azr_05_a_path_that_is_overwritten_shows_its_last_version"),
    ("AZR-06", "tests/it/cases/arrival.rs", "azr_06_a_file_that_is_gone_stops_no_neighbour"),
    ("AZR-07", "tests/it/cases/arrival.rs", "azr_07_a_file_counts_under_its_final_name"),
    ("AZR-08", "tests/it/cases/arrival.rs", "azr_08_the_same_bytes_under_two_names_are_two_files"),
    ("AZR-09", "tests/it/places/store.rs", "azr_09_answers_count_by_what_they_mean_and_not_by_whose_they_are"),
    ("AZR-10", "tests/it/local_host.rs", "a_handler_that_is_killed_is_started_again_and_nothing_is_lost_or_doubled"),
    ("AZR-11", "tests/it/cases/arrival.rs", "azr_11_our_own_output_and_foreign_containers_are_passed_over"),
    ("CDC-02", "src/change/image/tests/types.rs", "placeholders_in_every_type"),
    ("CDC-06", "src/change/image/tests.rs", "a_changed_key_is_a_delete_of_the_old_one_too"),
    ("CDC-15", "src/change/image/tests.rs", "each_kind_of_change_gives_its_row"),
    ("CDC-16", "src/decode/debezium/tests.rs", "records_of_a_topic"),
    ("CDC-17", "src/change/image/tests.rs", "what_is_no_change_of_this_table_is_kept_as_malformed"),
    ("CDC-18", "src/change/image/tests.rs", "what_a_delete_says_of_its_row_counts_for_nothing"),
    ("CDC-19", "src/change/image/tests/types.rs", "decimals_of_every_mode"),
    ("CDC-20", "src/change/image/tests/types.rs", "times_of_every_mode"),
    ("CDC-22", "src/change/image/tests.rs", "columns_come_and_go_and_change_their_type"),
    ("CDC-23", "src/change/image/tests.rs", "every_envelope_gives_the_same_row"),
    ("EXO-01", "tests/it/delivery.rs", "any_order_any_number_of_deliveries_workers_and_deaths"),
    ("EXO-02", "tests/it/crash.rs", "wherever_something_goes_wrong_a_fresh_process_finishes_the_work"),
    ("EXO-03", "tests/it/crash.rs", "wherever_something_goes_wrong_a_fresh_process_finishes_the_work"),
    ("EXO-05", "tests/it/cases/exactly.rs", "exo_05_a_checkpoint_that_cannot_be_written_fails_no_commit"),
    ("EXO-06", "src/table/tests/log.rs", "a_commit_after_a_compaction_is_refused"),
    ("EXO-07", "tests/it/streams.rs", "a_piece_is_trimmed_to_what_is_new"),
    ("EXO-09", "tests/it/cases/exactly.rs", "exo_09_the_ledger_forgets_no_file_and_knows_it_for_each_table"),
    ("EXO-10", "tests/it/cases/quarantine.rs", "exo_10_a_file_of_nothing_but_bad_records_is_settled_once"),
    ("EXO-11", "tests/it/crash.rs", "wherever_something_goes_wrong_a_fresh_process_finishes_the_work"),
];

/// Ids that are missing on purpose: what the changes of one key come to together and the maintenance of tables have suites of
/// their own.
const GROUPS: [(&str, &[u32]); 12] = [
    ("CSV", &[1, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]),
    ("ENC", &[1, 2, 4, 5, 6]),
    ("TYP", &[1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]),
    ("TIM", &[1, 3, 5, 6, 7, 8, 9, 10, 11]),
    ("JSN", &[1, 2, 3, 4, 5, 7, 8, 9]),
    ("PQT", &[2, 4, 5, 6, 7, 8]),
    ("SCH", &[1, 2, 3, 5, 6]),
    ("QAR", &[1, 3, 4, 7]),
    ("QUE", &[1, 2, 4, 5]),
    ("AZR", &[1, 2, 4, 5, 6, 7, 8, 9, 10, 11]),
    ("CDC", &[2, 6, 15, 16, 17, 18, 19, 20, 22, 23]),
    ("EXO", &[1, 2, 3, 5, 6, 7, 9, 10, 11]),
];

#[test]
fn every_case_has_one_test_and_every_test_of_a_case_is_in_the_index() {
    let wanted: BTreeSet<String> = GROUPS
        .iter()
        .flat_map(|(group, numbers)| numbers.iter().map(move |number| format!("{group}-{number:02}")))
        .collect();
    let listed: BTreeSet<String> = INDEX.iter().map(|(id, ..)| (*id).to_owned()).collect();
    assert_eq!(listed, wanted);
    assert_eq!(listed.len(), INDEX.len(), "an id stands once");
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    for (id, path, test) in INDEX {
        assert_eq!(read(path).matches(&format!("fn {test}(")).count(), 1, "{id}: {test} in {path}");
    }
    for entry in std::fs::read_dir(root().join("tests/it/cases")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for name in text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            let id = name.split('_').take(2).collect::<Vec<_>>().join("-").to_uppercase();
            let is_case = GROUPS.iter().any(|(group, _)| id.starts_with(&format!("{group}-")));
            assert!(!is_case || INDEX.iter().any(|(known, _, test)| *known == id && *test == name), "{name}");
        }
    }
}
