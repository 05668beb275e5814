/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about argument templates and about reading Java source for its main class. */

#include "test.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "lang/template.h"
#include "run/java_source.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *expand_one(
    const char *text, const struct template_vars *vars, struct strv *out)
{
    const char *name = NULL;

    strv_done(out);
    assert_null(template_problem(text, true));
    assert_int_equal(template_expand(text, vars, out, &name), 0);
    assert_int_equal(out->count, 1);
    return out->items[0];
}

static void words_and_numbers_are_put_in(void **state)
{
    const struct run_limits limits = {.memory_mb = 256, .cpu_milli = 1500, .stack_mb = 1};
    const struct template_vars vars = {.entry = "a.py", .home = "/opt/x", .limits = &limits};
    CLEANUP(strv_done) struct strv out = {0};

    assert_string_equal(expand_one("plain", &vars, &out), "plain");
    assert_string_equal(expand_one("", &vars, &out), "");
    assert_string_equal(expand_one("{home}/bin", &vars, &out), "/opt/x/bin");
    assert_string_equal(expand_one("/box/{entry}", &vars, &out), "/box/a.py");
    assert_string_equal(expand_one("-Xmx{memory_mb*3/4}m", &vars, &out), "-Xmx192m");
    assert_string_equal(expand_one("{memory_mb-56+1}", &vars, &out), "201");
    assert_string_equal(expand_one("{cpus}", &vars, &out), "2");
    assert_string_equal(expand_one("{stack_mb/2}", &vars, &out), "1");
    assert_string_equal(expand_one("a{{b}}c", &vars, &out), "a{b}c");
}

static void lists_are_whole_arguments(void **state)
{
    CLEANUP(strv_done) struct strv args = {0}, sources = {0}, out = {0};
    const struct template_vars vars = {.args = &args, .sources = &sources};
    const char *name = NULL;

    strv_add(&args, "{entry} $(id)");
    strv_add(&args, "");
    strv_add(&sources, "-o.c");
    strv_add(&sources, "@x.c");
    strv_add(&sources, "a b.c");
    assert_int_equal(template_expand("{args}", &vars, &out, &name), 0);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.items[0], "{entry} $(id)");
    assert_string_equal(out.items[1], "");
    assert_int_equal(template_expand("{sources}", &vars, &out, &name), 0);
    assert_string_equal(out.items[2], "./-o.c");
    assert_string_equal(out.items[3], "./@x.c");
    assert_string_equal(out.items[4], "a b.c");
    assert_int_equal(template_expand("{entry}", &vars, &out, &name), -ENOENT);
    assert_string_equal(name, "entry");
}

static void malformed_templates_are_refused(void **state)
{
    static const char *const bad[] = {"{", "{}", "{nope}", "{entry", "}", "{memory_mb*}",
        "{memory_mb*x}", "{entry*2}", "x{args}", "{args}x", "{ENTRY}", "{memory_mb*3/4", "{{}"};

    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_non_null(template_problem(bad[i], true));
    assert_null(template_problem("{args}", true));
    assert_non_null(template_problem("{args}", false));
}

static void names_of_files_cannot_be_options(void **state)
{
    static const char *const rows[][2] = {{"-", "./-"}, {"-rf", "./-rf"}, {"@x", "./@x"},
        {"=x", "./=x"}, {"+x", "./+x"}, {":memory:", "./:memory:"}, {"a-b", "a-b"},
        {".x", ".x"}, {"_", "_"}, {"\xc3\xa9", "\xc3\xa9"}};

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        cleanup_free char *safe = template_safe_name(rows[i][0]);

        assert_string_equal(safe, rows[i][1]);
    }
}

static void check_java(
    const char *text, const char *package, const char *public_type, const char *main_type)
{
    CLEANUP(java_source_done) struct java_source source = {0};

    java_source_scan(text, strlen(text), &source);
    if (package == NULL)
        assert_null(source.package);
    else
        assert_string_equal(source.package, package);
    if (public_type == NULL)
        assert_null(source.public_type);
    else
        assert_string_equal(source.public_type, public_type);
    if (main_type == NULL)
        assert_null(source.main_type);
    else
        assert_string_equal(source.main_type, main_type);
}

static void the_main_class_of_java_is_found(void **state)
{
    check_java("public class A { public static void main(String[] a) {} }", NULL, "A", "A");
    check_java("package a . b ;\nimport x.y;\nclass A {} public final class B { static "
               "public void main ( String... a ) {} }",
        "a.b", "B", "B");
    check_java("// class X { void main( } }\n/* public class Y { */ class Z { String s = "
               "\"class Q { void main(\"; char c = '{'; void main() {} }",
        NULL, NULL, "Z");
    check_java("class T { String s = \"\"\"\n } class U { void main( \"\"\"; }\n"
               "class V { static class W { void main() {} } void main() {} }",
        NULL, NULL, "V");
    check_java(
        "public record R(int a) { public static void main(String[] x) {} }", NULL, "R", "R");
    check_java("public enum E { A; public static void main(String[] x) {} }", NULL, "E", "E");
    check_java("import java.util.*; class A { int mainly() { return 1; } }", NULL, NULL, NULL);
    check_java("public interface I { } class B { public static void main(String[] a){} }", NULL,
        "I", "B");
}

static void broken_java_is_read_as_far_as_it_goes(void **state)
{
    static const char *const texts[] = {"", "\"", "'", "/*", "//", "/", "package", "package a.",
        "class", "public class", "}}}}", "{{{{", "\"\"\"", "\\", "class A { void main",
        "\xff\xfe\x80 class B {"};

    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(java_source_done) struct java_source source = {0};

        java_source_scan(texts[i], strlen(texts[i]), &source);
        assert_null(source.main_type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_numbers_are_put_in),
        cmocka_unit_test(lists_are_whole_arguments),
        cmocka_unit_test(malformed_templates_are_refused),
        cmocka_unit_test(names_of_files_cannot_be_options),
        cmocka_unit_test(the_main_class_of_java_is_found),
        cmocka_unit_test(broken_java_is_read_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
