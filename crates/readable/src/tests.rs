#![allow(clippy::unwrap_used)]

mod columns;
mod marks;

use super::*;

fn read(html: &str) -> Readable {
    within(html, Duration::from_secs(60))
}

fn within(html: &str, limit: Duration) -> Readable {
    readable(html, &Url::parse("https://example.com/a/").unwrap(), limit).unwrap()
}

#[test]
fn a_page_reads_as_a_person_sees_it() {
    for (html, text) in [
        ("just text", "just text"),
        ("<p>one\n  two<p>three", "one two\n\nthree"),
        ("<h1>Head</h1><p>Body <b>bold</b>, <i>it</i>alic.", "# Head\n\nBody bold, italic."),
        ("<h3>Deep</h3>x", "### Deep\n\nx"),
        ("<ul><li>one<li>two<ul><li>inner</ul></ul>after", "- one\n- two\n\n  - inner\n\nafter"),
        ("<table><tr><th>a<th>b<tr><td>1</td><td>2</td></table>", "a | b\n1 | 2"),
        ("<pre>  keep\n    this</pre>x", "  keep\n    this\n\nx"),
        ("a<br>b<br>c", "a\nb\nc"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("caf&eacute; &lt;b&gt; &#x41;&amp;&nbsp;b", "café <b> A& b"),
        ("<img alt='a cat' src=x><img src=y>", "[picture: a cat]"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<textarea><b>typed</textarea>", "<b>typed"),
        ("unclosed <b>bold <a href=", "unclosed bold"),
    ] {
        assert_eq!(read(html).text, text, "{html}");
    }
}

#[test]
fn hidden_elements_are_omitted() {
    for html in [
        "<script>HIDDEN</script>seen",
        "<script>if (a < b) { '</p>HIDDEN' }</script>seen",
        "<style>p { content: 'HIDDEN' }</style>seen",
        "<!-- HIDDEN -->seen",
        "<!-- <p> HIDDEN --><p>seen",
        "<template><p>HIDDEN</template>seen",
        "<noscript>HIDDEN</noscript>seen",
        "<div hidden>HIDDEN<div>HIDDEN</div>HIDDEN</div>seen",
        "<div style='display: none'>HIDDEN</div>seen",
        "<div style='color:red;VISIBILITY : hidden;'>HIDDEN</div>seen",
        "<span style='font-size:0px'>HIDDEN</span>seen",
        "<span style='opacity:0'>HIDDEN</span>seen",
        "<span aria-hidden=true>HIDDEN</span>seen",
        "<p hidden>HIDDEN</b>HIDDEN</p>seen",
        "<div><p hidden>HIDDEN</div>seen",
        "<ul><li hidden>HIDDEN<li>seen</ul>",
        "<input type=hidden value=HIDDEN>seen",
        "<meta name=description content=HIDDEN>seen",
        "<svg><title>HIDDEN</title></svg>seen",
        "<iframe>HIDDEN</iframe>seen",
        "<select><option>HIDDEN</select>seen",
        "<img hidden alt=HIDDEN>seen",
        "<a href='javascript:HIDDEN'>seen</a>",
        "<p title=HIDDEN data-x=HIDDEN>seen",
    ] {
        let page = read(html);
        assert_eq!(page.text.trim_start_matches("- "), "seen", "{html}");
        assert_eq!(page.links, Vec::<String>::new(), "{html}");
    }
}

#[test]
fn links_are_numbered_and_listed_whole() {
    let page = read(
        "<title>A \n page</title><a href='b'>relative</a>, <a href=//example.org/c?d=1#e>other</a>, <a href=b>again</a>, \
         <a href='#here'>here</a>, <a name=x>anchor</a>, <a href=mailto:me@example.com>mail",
    );
    assert_eq!(page.title, "A page");
    assert_eq!(page.text, "relative [1], other [2], again [1], here, anchor, mail");
    assert_eq!(page.links, ["https://example.com/a/b", "https://example.org/c?d=1#e", "mailto:me@example.com"]);
}

#[test]
fn hostile_markup_costs_no_more_than_its_length() {
    let n = 100_000;
    let m = n / 2;
    for (name, html) in [
        ("nested blocks", "<div>".repeat(n)),
        ("nested emphasis", "<b>".repeat(n)),
        ("nested tables", "<table><tr><td>x".repeat(n)),
        ("nested lists", "<ul><li>x".repeat(n)),
        ("nested hidden", "<p hidden>".repeat(n)),
        ("hidden and closed", format!("{}{}", "<p hidden>".repeat(n), "</b>".repeat(n))),
        ("links", (0..n).map(|i| format!("<a href=/{i}>x</a>")).collect()),
        ("comments", "<!--".repeat(n)),
        ("entities", "&amp".repeat(n)),
        ("open tags", "<a b='".repeat(n)),
        ("ends", "</p>".repeat(n)),
        ("struck blocks", format!("<s>{}", "<br>x".repeat(n))),
        ("open strikes", "<s>".repeat(n)),
        ("struck letters", "<s>x</s>".repeat(n)),
        ("scripts", "x<sub>x<sup>x".repeat(n)),
        ("boxes", "<input type=radio>".repeat(n)),
        ("options", format!("<select multiple>{}", "<option selected>x".repeat(n))),
        ("selects", "<select><option selected>x".repeat(n)),
        ("nested formulas", "<math>".repeat(n)),
        ("formulas", "<math>x</math>".repeat(n)),
        ("long numbers", format!("<ol start={}>{}", i64::MIN, "<li>x".repeat(n))),
        ("nested numbers", "<ol><li>x".repeat(n)),
        ("late numbers", "<ol reversed><li>x".repeat(n)),
        ("late numbers of one list", format!("<ol reversed>{}", "<li>x".repeat(n))),
        ("wide cells", format!("<table>{}", "<td colspan=1000>x".repeat(n))),
        ("wide and high cells", format!("<table>{}", "<tr><td rowspan=65534 colspan=1000><td>x".repeat(m))),
        (
            "covered rows",
            format!("<table><tr>{}{}", "<td rowspan=65534 colspan=1000>x".repeat(m), "<tr><td>x".repeat(m)),
        ),
        (
            "covered rows of different ends",
            format!(
                "<table><tr>{}{}",
                (0..m).map(|i| format!("<td rowspan={}>", 2 + i % 60_000)).collect::<String>(),
                "<tr><td>x".repeat(m)
            ),
        ),
        ("groups", format!("<table>{}", "<tbody><tr><td rowspan=9>x".repeat(m))),
        ("empty cells", format!("<table>{}", "<tr><td><td><td><td>x".repeat(m))),
    ] {
        let page = read(&html);
        assert!(!page.cut, "{name} took longer than a minute");
        assert!(page.links.len() <= 500, "{name}");
        assert!(page.text.len() <= 4 * html.len(), "{name}: {} of {}", page.text.len(), html.len());
    }
}

/// The tokenizer compares each attribute of a tag with all earlier ones. Without the limit, this would take minutes.
#[test]
fn a_tag_of_endless_attributes_is_left_when_the_time_is_over() {
    let html = format!("<p>before</p><a {}>", (0..400_000).map(|i| format!("a{i} ")).collect::<String>());
    let page = within(&html, Duration::from_millis(500));
    assert!(page.cut);
    assert_eq!(page.text, "before");
}
