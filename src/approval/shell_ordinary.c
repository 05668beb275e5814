/* SPDX-License-Identifier: Apache-2.0 */

/* Ordinary commands and free commands. The approval of an ordinary command covers other files,
 * too. Nobody is asked about a free command. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* --- ordinary and free commands */

/* Programs that read: which files they read varies, so an approval for a session covers other
 * ones. With an option of the last column all words are bound. */
static const struct {
    const char *programs;
    const char *sub; /* the first word, or NULL */
    const char *exact;
} ordinary[] = {
    {"ls cat head tail wc stat file du df id whoami uname which basename dirname realpath "
     "readlink diff cmp cut nl tac "
     "rev od md5sum sha1sum sha256sum sha512sum b2sum cksum comm join paste fold fmt expand "
     "seq sleep uptime free nproc "
     "groups lsblk lscpu tr pgrep type",
        NULL, "-C --compile -m"},
    {"grep egrep fgrep zgrep", NULL, ""},
    {"sort", NULL, "-o -T --output --compress-program --temporary-directory"},
    {"find", NULL,
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from"},
    {"tree", NULL, "-o -R"},
    {"rg", NULL, "--pre --hostname-bin"},
    {"git", "status log diff show blame ls-files rev-parse describe shortlog",
        "-c -C -O --output --ext-diff --textconv --git-dir --work-tree --exec-path "
        "--open-files-in-pager"},
};

/* Words of an ordinary command: known, or a pattern of file names that cannot become an option.
 */
static bool is_steady(const struct shell_word *word)
{
    return !word->is_open && !shell_may_be_secret(word) &&
           (word->is_literal || (!shell_is_unknown(word) && !strchr("-*?[{", word->shape[0])));
}

json_t *shell_ordinary(const struct shell_word *words, size_t count)
{
    const char *name = words[0].shape;
    if (str_has_prefix(name, "/usr/bin/") || str_has_prefix(name, "/bin/"))
        name = shell_program(&words[0]);
    size_t row = 0;
    size_t sub = count > 1 && str_eq(words[1].shape, "--no-pager") ? 2 : 1;
    for (; row < sizeof(ordinary) / sizeof(ordinary[0]); row++) {
        if (shell_name_is(name, ordinary[row].programs) &&
            (!ordinary[row].sub ||
                (count > sub && shell_name_is(words[sub].shape, ordinary[row].sub))))
            break;
    }
    if (row == sizeof(ordinary) / sizeof(ordinary[0]) || !words[0].is_literal ||
        shell_has_option(words, count, ordinary[row].exact))
        return NULL;
    for (size_t i = 1; i < count; i++) {
        if (!is_steady(&words[i]))
            return NULL;
    }
    json_t *form = json_pack("[s]", words[0].shape);
    bool has_operand = false;
    for (size_t i = 1; i < count; i++) {
        bool is_kept = words[i].shape[0] == '-' || (i == sub && ordinary[row].sub);
        has_operand = has_operand || !is_kept;
        if (is_kept)
            (void)json_array_append_new(form, shell_word_json(&words[i]));
    }
    if (has_operand)
        (void)json_array_append_new(form, json_string("*"));
    return form;
}

bool shell_is_filter(const struct shell_word *words, size_t count)
{
    bool is_filter = shell_name_is(
        words[0].shape, "uniq column base64 base32 xxd iconv hexdump jq zcat gunzip nl");
    if (str_eq(words[0].shape, "iconv") && shell_has_option(words, count, "-o --output"))
        return false;
    for (size_t i = 1; i < count; i++) {
        const char *shape = words[i].shape;
        is_filter = is_filter && words[i].is_literal &&
                    ((shape[0] == '-' && shape[1]) || str_eq(words[0].shape, "jq"));
    }
    return is_filter;
}

static bool all_literal(const struct shell_word *words, size_t count)
{
    bool is_literal = true;
    for (size_t i = 0; i < count; i++)
        is_literal = is_literal && words[i].is_literal;
    return is_literal;
}

/* [ and test: the operators are written out, and each other word stays one. `-v` looks into a
 * value, and -a and -o may read a word as an operator. */
static bool is_free_test(const struct shell_word *words, size_t count)
{
    if (str_eq(words[0].shape, "[") && (count < 2 || !str_eq(words[--count].shape, "]")))
        return false;
    if (count > 1 && str_eq(words[1].shape, "!") && words[1].is_literal)
        words++, count--;
    if (count == 1)
        return true;
    if (count == 2)
        return words[1].is_single;
    if (count == 3)
        return words[1].is_literal && words[2].is_single &&
               shell_name_is(words[1].shape, "-[bcdefghknprstuwxzGLNOS]");
    return count == 4 && words[1].is_single && words[3].is_single && words[2].is_literal &&
           shell_name_is(words[2].shape, "= == != -eq -ne -lt -le -gt -ge -nt -ot -ef");
}

static bool is_free_set(const struct shell_word *words, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const char *shape = words[i].shape;
        bool is_flags =
            strchr("-+", shape[0]) && shape[1] && shape[1 + strspn(shape + 1, "euxo")] == '\0';
        if (!words[i].is_literal ||
            (!is_flags && !shell_name_is(shape, "pipefail errexit nounset xtrace")))
            return false;
    }
    return count > 1;
}

/* A format without %n, which assigns a variable. */
static bool is_free_format(const struct shell_word *format)
{
    const char *at = format->shape;
    while ((at = strchr(at, '%'))) {
        at++;
        at += strspn(at, "#0123456789-+ '*.hlLjtzq");
        if (*at == 'n')
            return false;
        at += *at != '\0';
    }
    return format->is_literal && format->shape[0] != '-';
}

bool shell_is_free(const struct shell_word *words, size_t count)
{
    const char *name = words[0].shape;
    if (shell_name_is(name, ": true false echo cd pwd"))
        return true;
    if (str_eq(name, "printf"))
        return count > 1 && is_free_format(&words[1]);
    if (shell_name_is(name, "test \\["))
        return is_free_test(words, count);
    if (str_eq(name, "set"))
        return is_free_set(words, count);
    if (shell_name_is(name, "exit return break continue shift pushd popd dirs"))
        return all_literal(words, count);
    return str_eq(name, "wait") && count == 1;
}
