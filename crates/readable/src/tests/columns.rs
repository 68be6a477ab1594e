//! Columns of tables.

use super::*;

#[test]
fn cells_stay_in_their_columns() {
    for (html, text) in [
        ("<table><tr><td rowspan=2>a<td>b<tr><td>c</table>", "a | b\n | c"),
        ("<table><tr><td>a<td rowspan=2>b<td>c<tr><td>d<td>e</table>", "a | b | c\nd |  | e"),
        ("<table><tr><td colspan=2>a<td>b<tr><td>c<td>d<td>e</table>", "a |  | b\nc | d | e"),
        ("<table><tr><td colspan=2 rowspan=2>a<td>b<tr><td>c<tr><td>d</table>", "a |  | b\n |  | c\nd"),
        ("<table><tr><td rowspan=3>a<td rowspan=2>b<td>c<tr><td>d<tr><td>e</table>", "a | b | c\n |  | d\n | e"),
        ("<table><tbody><tr><td rowspan=0>a<td>b<tr><td>c<tbody><tr><td>d</table>", "a | b\n | c\nd"),
        ("<table><tr><td>a<td><td>c<tr><td> </td><td>d</table>", "a |  | c\n | d"),
        ("<table><tr><td colspan=0 rowspan=x>a<td colspan=-2>b<tr><td>c</table>", "a | b\nc"),
        ("<table><tr><td hidden>a<td>b<tr><td>c</table>", "b\nc"),
        ("<table><tr><td>a<td colspan=9><tr><td>c</table>", "a\nc"),
    ] {
        assert_eq!(read(html).text, text, "{html}");
    }
}

#[test]
fn paragraphs_stay_in_their_cells() {
    for (html, text) in [
        ("<table><tr><td><p>a</p></td><td><p>b</p></td></tr><tr><td><div>c</div><td>d</table>e", "a | b\nc | d\n\ne"),
        ("<table><tr><td><p>a<p>b</td><td>c</table>", "a\n\nb | c"),
        ("<table><tr><td>a<td><ul><li>b<li>c</ul><td>d</table>", "a\n\n- b\n- c\n\nd"),
        ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "a | b\n\nc"),
        ("<table><tr><td>a<tr><td><a href=b></a><td>c</table>", "a\n[1] | c"),
    ] {
        assert_eq!(read(html).text, text, "{html}");
    }
}

#[test]
fn empty_cells_are_bounded_by_the_length_of_the_page() {
    let page = read("<table><tr><td colspan=99999999999999999999>a<td>b<tr><td>c<td>d</table>");
    let lines: Vec<&str> = page.text.lines().collect();
    assert!(lines[0].starts_with("a | ") && lines[0].ends_with(" | b"), "{}", page.text);
    assert!(lines[0].len() < 80, "{}", page.text);
    assert_eq!(lines[1..], ["c | d"]);
}
