/* SPDX-License-Identifier: Apache-2.0 */

/* The compilers' own texts were copied from runs on Debian 12. */

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/diagnostics.h"

static const struct {
    const char *output;
    const char *found; /* file:line:column severity text, one per line */
} rows[] = {
    {"a.cpp: In function ‘int main()’:\n"
     "a.cpp:3:32: error: ‘g’ was not declared in this scope\n"
     "    3 | int main(){ int unused; return g(1) }\n"
     "a.cpp:3:17: warning: unused variable ‘unused’ [-Wunused-variable]\n"
     "a.cpp:1:5: note: declared here\n",
        "a.cpp:3:32 error ‘g’ was not declared in this scope\n"
        "a.cpp:3:17 warning unused variable ‘unused’ [-Wunused-variable]\n"
        "a.cpp:1:5 note declared here\n"},
    {"a.c:1:10: fatal error: nope.h: No such file or directory\n",
        "a.c:1:10 error nope.h: No such file or directory\n"},
    {"In file included from /usr/include/c++/12/vector:64,\n"
     "                 from main.cpp:1:\n"
     "/usr/include/c++/12/bits/stl_vector.h:1:2: error: static assertion failed\n",
        "/usr/include/c++/12/bits/stl_vector.h:1:2 error static assertion failed\n"},
    {"/usr/bin/ld: /tmp/ccFDyO19.o: in function `main':\n"
     "l.c:(.text.startup+0x3): undefined reference to `f'\n"
     "collect2: error: ld returned 1 exit status\n",
        "l.c:0:0 error undefined reference to `f'\n"},
    {"# box\n./a.go:2:8: \"os\" imported and not used\n",
        "a.go:2:8 error \"os\" imported and not used\n"},
    {"error[E0425]: cannot find function `foo` in this scope\n --> a.rs:3:2\n  |\n"
     "3 |  foo();\n\nwarning: unused variable: `y`\n --> /box/src/b.rs:2:6\n"
     "error: aborting due to 2 previous errors\n\n",
        "a.rs:3:2 error cannot find function `foo` in this scope\n"
        "src/b.rs:2:6 warning unused variable: `y`\n"},
    {"Main.java:3: error: ';' expected\n    int x = \"a\"\n               ^\n"
     "Main.java:4: warning: [removal] gone\n1 error\n",
        "Main.java:3:16 error ';' expected\nMain.java:4:0 warning [removal] gone\n"},
    {"✘ [ERROR] Unexpected \";\"\n\n    a.ts:1:18:\n      1 │ const x: number = ;\n"
     "▲ [WARNING] Comparison with -0 [equals-negative-zero]\n\n    src/b.ts:2:0:\n",
        "a.ts:1:19 error Unexpected \";\"\n"
        "src/b.ts:2:1 warning Comparison with -0 [equals-negative-zero]\n"},
    {"main.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.\r\n",
        "main.ts:1:7 error TS2322: Type 'string' is not assignable to type 'number'.\n"},
    /* Text that only looks like a place. */
    {"", ""},
    {"error: linking failed\n", ""},
    {"at 12:30 something happened\n", ""},
    {"a b.c:1:2: error: a name with a space\n", ""},
    {"x:99999999999: error: number\n", ""},
    {":1:2: error: no name\n", ""},
    {"a.c:\na.c:1\na.c:1:\na.c:(\na.c(1,\n --> \n", ""},
};

static char *tell(const char *output, size_t len)
{
    struct diagnostic list[DIAGNOSTICS_MAX];
    size_t count = diagnostics_find(list, 0, output, len);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; i < count; i++)
        fprintf(f, "%.*s:%u:%u %s %.*s\n", (int)list[i].file_len, list[i].file, list[i].line,
            list[i].column, diagnostic_severity_name(list[i].severity), (int)list[i].text_len,
            list[i].text);
    fclose(f);
    return text;
}

static void each_compiler_is_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = tell(rows[i].output, strlen(rows[i].output));
        assert_string_equal(text, rows[i].found);
        free(text);
    }
}

static void what_is_found_is_bounded(void **state)
{
    (void)state;
    char *output = malloc(200000);
    size_t len = 0;
    for (int i = 0; i < 1000; i++)
        len += (size_t)sprintf(output + len, "a.c:%d:1: error: x\n", i + 1);
    struct diagnostic list[DIAGNOSTICS_MAX];
    assert_int_equal(diagnostics_find(list, 0, output, len), DIAGNOSTICS_MAX);
    assert_int_equal(diagnostics_find(list, DIAGNOSTICS_MAX, output, len), DIAGNOSTICS_MAX);

    len = (size_t)sprintf(output, "a.c:1:1: error: ");
    memset(output + len, 'x', 5000);
    assert_int_equal(diagnostics_find(list, 0, output, len + 5000), 1);
    assert_int_equal(list[0].text_len, 1000);
    free(output);
}

/* Every cut and every changed byte of the real texts, in memory of exactly that size: valgrind
 * and the sanitizers see a byte read too many. */
static void hostile_text_is_read_within_its_bounds(void **state)
{
    (void)state;
    uint64_t random = 1;
    static const char bytes[] = ":()[]-> \n\r^0159,E";
    for (int round = 0; round < 20000; round++) {
        const char *from = rows[test_random(&random) % (sizeof(rows) / sizeof(rows[0]))].output;
        size_t len = strlen(from);
        len = len ? test_random(&random) % len : 0;
        char *copy = malloc(len ? len : 1);
        memcpy(copy, from, len);
        for (int i = 0; i < 4 && len; i++)
            copy[test_random(&random) % len] =
                bytes[test_random(&random) % (sizeof(bytes) - 1)];
        struct diagnostic list[DIAGNOSTICS_MAX];
        size_t count = diagnostics_find(list, 0, copy, len);
        for (size_t i = 0; i < count; i++) {
            assert_true(list[i].file_len > 0 && list[i].file >= copy);
            assert_true(list[i].file + list[i].file_len <= copy + len);
            assert_true(list[i].text >= copy && list[i].text + list[i].text_len <= copy + len);
        }
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_compiler_is_understood),
        cmocka_unit_test(what_is_found_is_bounded),
        cmocka_unit_test(hostile_text_is_read_within_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
