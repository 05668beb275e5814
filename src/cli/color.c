/* SPDX-License-Identifier: Apache-2.0 */

/* See color.h. */

#include "cli/color.h"

#include "base/str.h"

#include <stdlib.h>
#include <unistd.h>

static enum { WHEN_AUTO, WHEN_ALWAYS, WHEN_NEVER } chosen;

bool color_choose(const char *when)
{
    static const char *const words[] = {"auto", "always", "never"};
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (str_eq(words[i], when)) {
            chosen = i;
            return true;
        }
    }
    return false;
}

static bool has_colors(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    if (chosen != WHEN_AUTO)
        return chosen == WHEN_ALWAYS;
    return isatty(fileno(stream)) && !(no_color && *no_color) &&
           !str_eq(getenv("TERM"), "dumb");
}

const char *color_on(FILE *stream, enum color color)
{
    static const char *const sequences[] = {[COLOR_GOOD] = "\033[32m",
        [COLOR_BAD] = "\033[31m",
        [COLOR_WARN] = "\033[33m",
        [COLOR_STRONG] = "\033[1m"};
    return has_colors(stream) ? sequences[color] : "";
}

const char *color_off(FILE *stream)
{
    return has_colors(stream) ? "\033[0m" : "";
}
