/* SPDX-License-Identifier: Apache-2.0 */

/* See hint.h. */

#include "run/hint.h"

#include <stdio.h>
#include <string.h>

/* How far from the end of stderr the line may be. */
enum { LOOK = 1024, NAME_MAX_LEN = 64 };

void hint_missing_module(const struct missing_module *missing, const char *text, size_t len,
    char *message, size_t size)
{
    if (!missing->words)
        return;
    const char *words = missing->words;
    const size_t words_len = strlen(words);
    char name[NAME_MAX_LEN + 1];
    size_t least = len > LOOK ? len - LOOK : 0;
    size_t at = len >= words_len ? len - words_len + 1 : 0;
    while (at > least && memcmp(text + at - 1, words, words_len) != 0)
        at--;
    if (at <= least)
        return;
    const char *from = text + at - 1 + words_len;
    size_t rest = len - (at - 1 + words_len);
    size_t used = 0;
    while (used < rest && used < NAME_MAX_LEN && from[used] != '\'')
        used++;
    memcpy(name, from, used);
    name[used] = '\0';
    if (used < rest && from[used] == '\'' && strv_has(&missing->modules, name))
        (void)snprintf(message, size,
            "the image `%s` has %s: name it in `image`. If it is not there, the operator "
            "gets it with `hermes image build --operator %s`",
            missing->image, name, missing->image);
}
