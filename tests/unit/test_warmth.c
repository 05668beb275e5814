/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about which variables of a request keep it from a warm start. */

#include "test.h"

#include "run/warmth.h"
#include "runtime_fixture.h"

static const char *problem(const struct runtime *rt, const char *assignment)
{
    const struct strv none = {0};
    CLEANUP(strv_done) struct strv asked = {0};
    strv_add(&asked, assignment);
    return warmth_words_problem(&rt->run, &none, &none, &asked);
}

static void each_language_says_what_its_interpreter_reads_early(void **state)
{
    static const struct {
        const char *language;
        const char *early, *late;
    } rows[] = {{"python", "PYTHONPATH=/x", "NODE_OPTIONS=x"},
        {"python", "SSLKEYLOGFILE=x", "JAVA_X=y"},
        {"javascript", "NODE_OPTIONS=x", "PYTHONPATH=/x"}, {"javascript", "UV_X=1", "A=b"},
        {"java", "_JAVA_OPTIONS=x", "NODE_OPTIONS=x"},
        {"java", "JDK_JAVA_OPTIONS=x", "PYTHON=1"}};
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};
    assert_int_equal(runtime_load(&reg, fixture_dirs(), NULL, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct runtime *rt = runtime_find(&reg, rows[i].language);
        assert_string_equal(problem(rt, rows[i].early), "environment");
        assert_null(problem(rt, rows[i].late));
    }
}

static void what_the_c_library_reads_is_early_for_every_language(void **state)
{
    static const char *const early[] = {"LD_PRELOAD=x", "LC_ALL=C", "LANG=C", "LANGUAGE=de",
        "GLIBC_TUNABLES=x", "MALLOC_ARENA_MAX=1"};
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};
    assert_int_equal(runtime_load(&reg, fixture_dirs(), NULL, &err), 0);
    for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++) {
        for (size_t k = 0; k < reg.count; k++)
            assert_string_equal(problem(&reg.items[k], early[i]), "environment");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_language_says_what_its_interpreter_reads_early),
        cmocka_unit_test(what_the_c_library_reads_is_early_for_every_language)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
