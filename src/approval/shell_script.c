/* SPDX-License-Identifier: Apache-2.0 */

/* Scripts of sed. `e` and the flag `e` of `s` run a command, `w` writes a file. A script is
 * plain when each of its commands is one that only edits; what is not known is not plain. */

#include "approval/shell_internal.h"

#include <string.h>

/* Behind the next `end` of the same line without a backslash, or NULL. */
static const char *skip_to(const char *at, char end)
{
    while (*at && *at != '\n' && *at != end)
        at += at[0] == '\\' && at[1] && at[1] != '\n' ? 2 : 1;
    return *at && *at == end ? at + 1 : NULL;
}

/* Lines, `$`, /pattern/ and \cpatternc, with what stands between and behind them. */
static const char *skip_addresses(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\n;{}0123456789$,!~+");
        bool is_other = *at == '\\' && at[1];
        if (*at != '/' && !is_other)
            return at;
        at = skip_to(at + 1 + is_other, is_other ? at[1] : '/');
        if (!at)
            return NULL;
        at += strspn(at, "IM");
    }
}

static const char *skip_command(const char *at)
{
    char command = *at;
    if (command == 's' || command == 'y') {
        char mark = at[1];
        at = mark ? skip_to(at + 2, mark) : NULL;
        at = at ? skip_to(at, mark) : NULL;
        return at ? at + (command == 's' ? strspn(at, "gpiImM0123456789") : 0) : NULL;
    }
    if (strchr("pPdDgGhHxnNlz=qQF", command))
        return at + 1 + strspn(at + 1, " 0123456789");
    if (strchr("bt:T", command))
        return at + strcspn(at, ";\n}");
    const char *end = at + strcspn(at, "\n");
    return strchr("aic", command) && end[-1] != '\\' ? end : NULL;
}

bool shell_script_is_plain(const char *script)
{
    while (script) {
        script = skip_addresses(script);
        if (script && !*script)
            return true;
        script = script ? skip_command(script) : NULL;
        if (script && *script && !strchr(" \t\n;}", *script))
            return false;
    }
    return false;
}
