use super::*;

/// Fields of the whole text, or what stopped it.
fn split(dialect: &CsvDialect, lone_returns: bool, text: &str) -> Result<Vec<Vec<String>>, Piece> {
    let mut splitter = Splitter::new(dialect);
    splitter.lone_returns = lone_returns;
    let bytes = text.as_bytes();
    let mut marks = splitter.marks(bytes, 0);
    let (mut position, mut rows) = (0, Vec::new());
    while position < bytes.len() {
        let (mut fields, mut side) = (Vec::new(), Vec::new());
        match splitter.piece(&mut marks, position, true, &mut fields, &mut side) {
            Piece::Record { next, .. } => {
                let text = |field: &FieldAt| String::from_utf8(field.bytes(bytes, &side).to_vec()).unwrap();
                rows.push(fields.iter().map(text).collect());
                position = next;
            }
            Piece::Skipped { next } => position = next,
            stopped => return Err(stopped),
        }
    }
    Ok(rows)
}

#[test]
fn dialects() {
    let plain = CsvDialect::default();
    let escaped = CsvDialect { escape: Some(b'\\'), ..CsvDialect::default() };
    let unquoted = CsvDialect { quote: None, ..CsvDialect::default() };
    let commented = CsvDialect { comment: Some(b'#'), ..CsvDialect::default() };
    let cases: Vec<(&CsvDialect, bool, &str, Vec<Vec<&str>>)> = vec![
        (&plain, false, "a,b\n1,2\n", vec![vec!["a", "b"], vec!["1", "2"]]),
        (&plain, false, "a,b\r\r\n1,2\r\n3,", vec![vec!["a", "b"], vec!["1", "2"], vec!["3", ""]]),
        (&plain, false, "\n\r\n,\n", vec![vec!["", ""]]),
        (&plain, false, "\"\"\n\"\",\"\"", vec![vec![""], vec!["", ""]]),
        (&plain, false, "\"a\"\"b\nc\",d\r\n", vec![vec!["a\"b\nc", "d"]]),
        (&plain, false, "Pipe 24\",5\n", vec![vec!["Pipe 24\"", "5"]]),
        (&plain, false, " \"a\",b\n", vec![vec![" \"a\"", "b"]]),
        (&plain, false, "a\rb,c\n", vec![vec!["a\rb", "c"]]),
        (&plain, false, "a,b\r", vec![vec!["a", "b"]]),
        (&plain, true, "a,b\r\"c\rd\",e\r\r\nf,g", vec![vec!["a", "b"], vec!["c\rd", "e"], vec!["f", "g"]]),
        (&escaped, false, "\"say \\\"hi\",\"\\\\\"\n", vec![vec!["say \"hi", "\\"]]),
        (&escaped, false, "\"a\"\"b\",\\n\n", vec![vec!["a\"b", "\\n"]]),
        (&unquoted, false, "\"a,b\"\n", vec![vec!["\"a", "b\""]]),
        (&commented, false, "#x,\"y\na,#b\n", vec![vec!["a", "#b"]]),
        (&plain, false, "head\0tail,R\n\0\0,S", vec![vec!["head\0tail", "R"], vec!["\0\0", "S"]]),
    ];
    for (dialect, lone_returns, text, expected) in cases {
        assert_eq!(
            split(dialect, lone_returns, text),
            Ok(expected.iter().map(|row| row.iter().map(|s| (*s).to_owned()).collect()).collect()),
            "{text:?}"
        );
    }
    assert_eq!(split(&plain, false, "a,\"b"), Err(Piece::Unterminated { quote: 2 }));
    assert_eq!(split(&plain, false, "\"a\"b,\"c\nd"), Err(Piece::Broken { end: 7, next: 8 }));
    assert_eq!(split(&plain, false, "\"a\" \nd"), Err(Piece::Broken { end: 4, next: 5 }));
    assert_eq!(split(&plain, false, "\"a\"\r \nd"), Err(Piece::Broken { end: 5, next: 6 }));
}

#[test]
fn nothing_is_decided_before_it_is_known() {
    let splitter = Splitter::new(&CsvDialect::default());
    for text in ["", "a", "a,b", "a,b\r", "\"a", "\"a\"", "\"a\"\"", "\"a\"\r", "\"a\"x", "\"a\"\"b\"\r\r"] {
        let padded = text.as_bytes();
        let mut marks = splitter.marks(padded, 0);
        let piece = splitter.piece(&mut marks, 0, false, &mut Vec::new(), &mut Vec::new());
        assert_eq!(piece, Piece::Incomplete, "{text:?}");
    }
}
