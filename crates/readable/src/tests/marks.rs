//! Marks that change the meaning of a text.

use super::*;

fn assert_reads(cases: &[(&str, &str)]) {
    for (html, text) in cases {
        assert_eq!(read(html).text, *text, "{html}");
    }
}

#[test]
fn raised_text_is_no_digit_of_the_number_before_it() {
    assert_reads(&[
        ("30<sup>2</sup> days", "30^2 days"),
        ("2<sup>n + 1</sup>, e<sup>-x/2</sup>", "2^(n + 1), e^(-x/2)"),
        ("10<sup>6</sup>5, log<sub>2</sub>8, x<sub>1</sub> 2", "10^(6)5, log_(2)8, x_1 2"),
        ("10<sup>6</sup>, 2<sup>2<sup>3</sup></sup>", "10^6, 2^2^3"),
        ("x<sup></sup>y<sup> </sup>z", "xy z"),
        ("in 2020<sup><a href=#n1>1</a></sup>", "in 2020^1"),
        ("in 2020<sup><a href=#n1>[1]</a></sup>, so", "in 2020^[1], so"),
        ("so<sup class=reference><a href=#n><span>[</span>7<span>]</span></a></sup>", "so^[7]"),
        ("so<sup><a href=note><img alt=note></a></sup>", "so^[picture: note] [1]"),
        ("<pre>a\n10<sup>6</sup></pre>", "a\n10^6"),
        ("<table><tr><td>m<sup>2</sup><td><sup>3</sup></table>", "m^2 | ^3"),
    ]);
}

#[test]
fn lowered_text_is_marked_behind_a_letter_or_a_digit() {
    assert_reads(&[
        ("H<sub>2</sub>O, CO<sub>2</sub>", "H_2O, CO_2"),
        ("x<sub></sub>y <sub>low</sub> (<sub>a</sub>)<sub>2</sub>", "xy low (a)_2"),
        ("x<sub>i</sub><sup>2</sup>, 5<sub>10</sub>", "x_i^2, 5_10"),
    ]);
}

#[test]
fn struck_text_is_marked() {
    assert_reads(&[
        ("now <del>10</del> <ins>20</ins>", "now ~~10~~ 20"),
        ("<s>a </s>b<strike> c</strike>, d", "~~a~~ b ~~c~~, d"),
        ("a<s></s>b<del> </del>c<s><br></s>d", "ab c\nd"),
        ("<del>a <s>b</s> c</del> d", "~~a b c~~ d"),
        ("<del><p>a<p>b</del>c", "~~a~~\n\n~~b~~c"),
        ("<ul><li><s>a</s><li><s>b<li>c</s></ul>d", "- ~~a~~\n- ~~b~~\n- ~~c~~\n\nd"),
        ("<table><tr><td><s>a<td>b</s><td>c</table>", "~~a~~ | b | c"),
        ("<table><tr><td><del>1<tr><td>2</table>", "~~1~~\n2"),
        ("<div><del>10</div><p>20<p>30", "~~10~~\n\n20\n\n30"),
        ("<del><div>a</div><div>b</div></del>c", "~~a~~\n~~b~~\nc"),
        ("<s><table><tr><td>a<td>b</table></s>c", "~~a~~ | ~~b~~\n\nc"),
        ("<pre>x\n<del>old\n\nold</del>\nnew</pre>", "x\n~~old~~\n\n~~old~~\nnew"),
        ("x <s><a href=b>a</a></s>", "x ~~a [1]~~"),
        ("</s>a<s>b", "a~~b~~"),
        ("<s hidden>a</s>b", "b"),
    ]);
}

#[test]
fn boxes_show_whether_they_are_ticked() {
    assert_reads(&[
        (
            "<ul><li><input type=checkbox checked disabled>done<li><input type=CheckBox> open</ul>",
            "- [x] done\n- [ ] open",
        ),
        ("<input type=radio name=a>yes<input type=radio name=a checked>no", "[ ] yes [x] no"),
        ("<input checked><input type=text checked>a", "a"),
        ("<input type=checkbox hidden>a", "a"),
    ]);
}

#[test]
fn ordered_lists_keep_their_numbers() {
    assert_reads(&[
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b"),
        ("<ol start=' +3x'><li>a<li value=7>b<li value=x>c</ol>", "3. a\n7. b\n8. c"),
        ("<ol start=-1 type=a><li>a<li>b<li>c</ol>", "-1. a\n0. b\n1. c"),
        ("<ol reversed><li>a<li>b<li>c</ol>d", "3. a\n2. b\n1. c\n\nd"),
        ("<ol reversed><li>a<li value=9>b<li>c</ol>", "3. a\n9. b\n8. c"),
        ("<ol reversed start=2><li>a<li>b</ol>", "2. a\n1. b"),
        ("<ol><li>a<ol reversed><li>b<li>c</ol><ul><li>d</ul><li>e</ol>", "1. a\n\n  2. b\n  1. c\n\n  - d\n\n2. e"),
        ("<ol><li hidden>a<li>b</ol>", "1. b"),
        (
            "<p>the numbers of a page that is long enough</p><ol start=99999999999999999999><li>a<li>b</ol>",
            "the numbers of a page that is long enough\n\n9223372036854775807. a\n9223372036854775807. b",
        ),
        ("<li>a<menu><li>b</menu>", "- a\n- b"),
    ]);
}

#[test]
fn a_choice_reads_as_its_chosen_options() {
    assert_reads(&[
        ("Size<select><option>S<option selected>M<option>L</select>only", "Size M only"),
        ("<select><option selected>S</option><option selected>M</option></select>", "M"),
        ("<select multiple><option selected>S\n<optgroup><option>M<option selected>L</select>", "S, L"),
        ("10<select><option>kg</select>20", "10 20"),
        ("<select><option selected>S<input type=radio>a", "S [ ] a"),
        ("<table><tr><td><select><option selected>S<td>x<tr><td>y</table>after", "S | x\ny\n\nafter"),
        ("<select hidden><option selected>S</select>a", "a"),
    ]);
}

#[test]
fn a_formula_reads_as_its_source_or_its_text() {
    let tex = "<annotation encoding='application/x-tex'>x^{2}</annotation>";
    assert_reads(&[
        ("so <math alttext='x^2'><mi>x</mi><mn>2</mn></math>, then", "so x^2, then"),
        (&format!("<math><semantics><msup><mi>x</mi><mn>2</mn></msup>{tex}</semantics></math>."), "x^{2}."),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac><annotation encoding=a>b</annotation></math>", "1 2"),
        ("<math></math>a<math alttext=' '><mi>b", "ab"),
        ("<math><mi>x<p>after", "x\n\nafter"),
        ("<math style='display:none' alttext=x></math>a", "a"),
    ]);
}
