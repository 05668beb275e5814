/* SPDX-License-Identifier: Apache-2.0 */

/* Comparers: the same answer however the output is cut; a text is the same as itself; what is
 * the same by a stricter kind is so by a laxer one. */

#include <stdint.h>
#include <stdlib.h>

#include "judge/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static enum compare_answer answer_of(
    int kind, const char *got, size_t got_len, const char *want, size_t want_len, size_t piece)
{
    struct compare_rule rule = {
        .kind = (enum compare_kind)kind, .absolute = 1e-6, .relative = 1e-6};
    struct compare_text text = {.data = want, .size = want_len, .fd = -1};
    struct compare *c = compare_new(&rule, &text);
    enum compare_answer answer;
    for (size_t at = 0; at < got_len; at += piece)
        compare_feed(c, got + at, got_len - at < piece ? got_len - at : piece);
    check(compare_finish(c, &answer, NULL, 0) == 0);
    compare_free(c);
    return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum compare_answer answers[COMPARE_KINDS];
    if (size < 2)
        return 0;
    size_t piece = 1 + data[0] % 7;
    size_t cut = 1 + data[1] * (size - 1) / 256;
    const char *got = (const char *)data + 1;
    const char *want = (const char *)data + cut;
    for (int kind = 0; kind < COMPARE_KINDS; kind++) {
        answers[kind] = answer_of(kind, got, cut - 1, want, size - cut, piece);
        check(answers[kind] == answer_of(kind, got, cut - 1, want, size - cut, size));
        check(answer_of(kind, want, size - cut, want, size - cut, piece) == COMPARE_SAME);
    }
    check(answers[COMPARE_EXACT] >= answers[COMPARE_TRIM]);
    check(answers[COMPARE_TRIM] >= answers[COMPARE_TOKENS]);
    check(answers[COMPARE_TOKENS] >= answers[COMPARE_FLOAT]);
    check(answers[COMPARE_EXACT] != COMPARE_SAME || answers[COMPARE_UNORDERED] == COMPARE_SAME);
    return 0;
}
