/* SPDX-License-Identifier: Apache-2.0 */

/* Comparers: a table of known answers, and a slow, obvious model that must agree with them on
 * thousands of small texts however they are cut into pieces. */

#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "judge/compare.h"
#include "judge/siphash.h"

static enum compare_answer compare_cut(const struct compare_rule *rule, const char *got,
    size_t got_len, const char *want, size_t want_len, size_t piece, bool from_file)
{
    cleanup_close int fd = from_file ? fs_memfd_sealed("expected", want, want_len) : -1;
    struct compare_text text = {.data = want, .size = want_len, .fd = fd};
    struct compare *c = compare_new(rule, &text);
    enum compare_answer answer = COMPARE_DIFFERENT;
    char why[128];
    for (size_t at = 0; at < got_len; at += piece)
        compare_feed(c, got + at, got_len - at < piece ? got_len - at : piece);
    assert_int_equal(compare_finish(c, &answer, why, sizeof(why)), 0);
    assert_int_equal(why[0] == '\0', answer == COMPARE_SAME);
    compare_free(c);
    return answer;
}

enum { SAME = COMPARE_SAME, SPACE = COMPARE_SPACE, OTHER = COMPARE_DIFFERENT };

static const struct {
    const char *got, *want;
    int exact, trim, tokens, number, unordered;
} table[] = {
    {"", "", SAME, SAME, SAME, SAME, SAME},
    {"a\n", "a\n", SAME, SAME, SAME, SAME, SAME},
    {"a", "a\n", SPACE, SAME, SAME, SAME, SAME},
    {"a\n\n\n", "a\n", SPACE, SAME, SAME, SAME, SAME},
    {"a \t\r\nb", "a\nb\n", SPACE, SAME, SAME, SAME, SAME},
    {"a\n\nb", "a\nb\n", SPACE, SPACE, SAME, SAME, SAME},
    {"a\n \nb", "a\n\nb\n", SPACE, SAME, SAME, SAME, SAME},
    {" a", "a", SPACE, SPACE, SAME, SAME, OTHER},
    {"a  b", "a b", SPACE, SPACE, SAME, SAME, OTHER},
    {"a\tb", "a b", SPACE, SPACE, SAME, SAME, OTHER},
    {"ab", "a b", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"a b", "ab", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"a", "a b", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"a b", "a", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"", "a", OTHER, OTHER, OTHER, OTHER, OTHER},
    {" \n", "a", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"a", "", OTHER, OTHER, OTHER, OTHER, OTHER},
    {" \n", "", SPACE, SAME, SAME, SAME, SAME},
    {"a", "b", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"2\n1\n", "1\n2\n", OTHER, OTHER, OTHER, OTHER, SAME},
    {"1\n1\n2\n", "1\n2\n2\n", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"1\n1\n", "1\n", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"1.0", "1", OTHER, OTHER, OTHER, SAME, OTHER},
    {"1e3", "1000", OTHER, OTHER, OTHER, SAME, OTHER},
    {"+.5", "0.5", OTHER, OTHER, OTHER, SAME, OTHER},
    {"-0", "0", OTHER, OTHER, OTHER, SAME, OTHER},
    {"1.0000001", "1", OTHER, OTHER, OTHER, SAME, OTHER},
    {"1.00001", "1", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"1000000.5", "1000000", OTHER, OTHER, OTHER, SAME, OTHER},
    {"1000005", "1000000", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"nan", "nan", SAME, SAME, SAME, SAME, SAME},
    {"nan", "1", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"inf", "1e999", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"0x1", "1", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"1e", "1", OTHER, OTHER, OTHER, OTHER, OTHER},
    {".", "0", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"-", "0", OTHER, OTHER, OTHER, OTHER, OTHER},
    {"x 1.0", "x 1", OTHER, OTHER, OTHER, SAME, OTHER},
    {"y 1.0", "x 1", OTHER, OTHER, OTHER, OTHER, OTHER},
};

static void known_answers(void **state)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const int want[COMPARE_KINDS] = {table[i].exact, table[i].trim, table[i].tokens,
            table[i].number, table[i].unordered};
        for (int kind = 0; kind < COMPARE_KINDS; kind++) {
            struct compare_rule rule = {
                .kind = (enum compare_kind)kind, .absolute = 1e-6, .relative = 1e-6};
            for (size_t piece = 1; piece < 4; piece++) {
                int got = (int)compare_cut(&rule, table[i].got, strlen(table[i].got),
                    table[i].want, strlen(table[i].want), piece, piece == 2);
                if (got != want[kind])
                    fail_msg("%s: \"%s\" for \"%s\" is %d, not %d", compare_names[kind],
                        table[i].got, table[i].want, got, want[kind]);
            }
        }
    }
}

/* The model: rewrites a text into what the kind compares, then compares bytes. */
static size_t simplify(enum compare_kind kind, const char *in, size_t len, char *out)
{
    size_t n = 0;
    if (kind == COMPARE_EXACT) {
        memcpy(out, in, len);
        return len;
    }
    for (size_t i = 0; i < len; i++) {
        char c = in[i];
        if (kind == COMPARE_TRIM && c == '\n') {
            while (n && out[n - 1] != '\n' && strchr(" \t\r", out[n - 1]))
                n--;
        }
        if (kind == COMPARE_TOKENS && strchr(" \t\r\n", c)) {
            if (n && out[n - 1] != ' ')
                out[n++] = ' ';
            continue;
        }
        out[n++] = c;
    }
    while (n && strchr(" \t\r\n", out[n - 1]))
        n--;
    return n;
}

static bool model_same(
    enum compare_kind kind, const char *got, size_t got_len, const char *want, size_t want_len)
{
    char a[64];
    char b[64];
    size_t a_len = simplify(kind, got, got_len, a);
    size_t b_len = simplify(kind, want, want_len, b);
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static size_t make_text(uint64_t *seed, char *out)
{
    static const char bytes[] = "aab  \n\n\t\r";
    size_t len = test_random(seed) % 9;
    for (size_t i = 0; i < len; i++)
        out[i] = bytes[test_random(seed) % (sizeof(bytes) - 1)];
    return len;
}

static void agrees_with_the_model(void **state)
{
    uint64_t seed = 7;
    size_t counts[3] = {0};
    for (int i = 0; i < 200000; i++) {
        char got[16];
        char want[16];
        size_t want_len = make_text(&seed, want);
        size_t got_len = make_text(&seed, got);
        struct compare_rule rule = {.kind = (enum compare_kind)(i % 3)};
        bool tokens = model_same(COMPARE_TOKENS, got, got_len, want, want_len);
        bool same = model_same(rule.kind, got, got_len, want, want_len);
        int expected = same ? SAME : tokens ? SPACE : OTHER;
        int answer = (int)compare_cut(
            &rule, got, got_len, want, want_len, 1 + test_random(&seed) % 4, i % 64 == 0);
        counts[answer]++;
        if (answer != expected)
            fail_msg("%s: \"%.*s\" for \"%.*s\" is %d, not %d", compare_names[rule.kind],
                (int)got_len, got, (int)want_len, want, answer, expected);
    }
    assert_true(counts[SAME] > 1000 && counts[SPACE] > 1000 && counts[OTHER] > 1000);
}

/* Gaps and tokens that are longer than what is kept of them. */
static void long_runs_are_hashed(void **state)
{
    enum { LEN = 5000 };
    static char got[LEN];
    static char want[LEN];
    for (int kind = 0; kind < COMPARE_KINDS; kind++) {
        struct compare_rule rule = {.kind = (enum compare_kind)kind, .relative = 1e-9};
        for (size_t at = 1; at < LEN - 1; at += 499) {
            memset(got, '7', LEN);
            memset(want, '7', LEN);
            assert_int_equal(compare_cut(&rule, got, LEN, want, LEN, 97, at % 2), SAME);
            got[at] = '8';
            assert_int_equal(compare_cut(&rule, got, LEN, want, LEN, 97, at % 2), OTHER);
            memset(got, ' ', LEN);
            memset(want, ' ', LEN);
            got[0] = want[0] = got[LEN - 1] = want[LEN - 1] = 'x';
            assert_int_equal(compare_cut(&rule, got, LEN, want, LEN, 97, at % 2), SAME);
            got[at] = '\t';
            int answer = (int)compare_cut(&rule, got, LEN, want, LEN, 97, at % 2);
            bool blind = kind == COMPARE_TOKENS || kind == COMPARE_FLOAT;
            assert_int_equal(answer, blind ? SAME : kind == COMPARE_UNORDERED ? OTHER : SPACE);
        }
    }
}

static void unordered_takes_any_order(void **state)
{
    uint64_t seed = 3;
    struct compare_rule rule = {.kind = COMPARE_UNORDERED};
    for (int round = 0; round < 200; round++) {
        char got[2048];
        char want[2048];
        unsigned order[40];
        size_t got_len = 0;
        size_t want_len = 0;
        for (unsigned i = 0; i < 40; i++)
            order[i] = i;
        for (unsigned i = 39; i > 0; i--) {
            unsigned k = test_random(&seed) % (i + 1);
            unsigned kept = order[i];
            order[i] = order[k];
            order[k] = kept;
        }
        for (unsigned i = 0; i < 40; i++) {
            want_len += (size_t)snprintf(want + want_len, 40, "line %u of many\n", i);
            got_len += (size_t)snprintf(got + got_len, 40, "line %u of many \n", order[i]);
        }
        assert_int_equal(compare_cut(&rule, got, got_len, want, want_len, 13, false), SAME);
        got[got_len / 2] ^= 1;
        assert_int_equal(compare_cut(&rule, got, got_len, want, want_len, 13, false), OTHER);
    }
}

/* From the appendix of the paper's reference code: key 00..0f, input 00..0e. */
static void siphash_is_siphash(void **state)
{
    static const struct siphash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    struct siphash s;
    uint64_t out[2];
    siphash_init(&s, &key);
    siphash_end(s, out);
    assert_true(out[0] == 0xe6a825ba047f81a3u && out[1] == 0x930255c71472f66du);
    for (unsigned char i = 0; i < 15; i++)
        siphash_add(&s, i);
    siphash_end(s, out);
    assert_true(out[0] == 0x11a8b03399e99354u && out[1] == 0xd9c3cf970fec087eu);
}

static void says_where(void **state)
{
    struct compare_rule rule = {.kind = COMPARE_TOKENS};
    struct compare_text text = {.data = "1 2\n3 secret\n", .size = 13, .fd = -1};
    struct compare *c = compare_new(&rule, &text);
    enum compare_answer answer;
    char why[128];
    compare_feed(c, "1 2\n3 sacret\n", 13);
    assert_int_equal(compare_finish(c, &answer, why, sizeof(why)), 0);
    assert_int_equal(answer, COMPARE_DIFFERENT);
    assert_non_null(strstr(why, "line 2, column 4"));
    assert_null(strstr(why, "secret"));
    compare_free(c);
}

static void a_file_that_cannot_be_read_is_told(void **state)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct compare_rule rule = {.kind = COMPARE_EXACT};
    struct compare_text text = {.fd = fds[0]};
    struct compare *c = compare_new(&rule, &text);
    enum compare_answer answer;
    compare_feed(c, "x", 1);
    assert_true(compare_finish(c, &answer, NULL, 0) < 0);
    compare_free(c);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(agrees_with_the_model),
        cmocka_unit_test(long_runs_are_hashed),
        cmocka_unit_test(unordered_takes_any_order),
        cmocka_unit_test(siphash_is_siphash),
        cmocka_unit_test(says_where),
        cmocka_unit_test(a_file_that_cannot_be_read_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
