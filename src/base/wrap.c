/* SPDX-License-Identifier: Apache-2.0 */

/* See wrap.h. Columns are bytes: the texts are ASCII. Lines of a terminal are one column
 * shorter than the terminal, because some terminals add an empty line after a full one. */

#include "base/wrap.h"

#include "base/os/terminal.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH_MIN = 60, WIDTH_MAX = 100 };

int wrap_width(void)
{
    int width = terminal_columns(STDOUT_FILENO) - 1;
    if (width < 0)
        return WRAP_WIDTH;
    return width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
}

/* Where a line continues: a row of a list below its text, other lines at `indent`. */
static int hang_of(const char *line, int indent)
{
    int len = (int)strcspn(line, "\n");
    int at = (int)strspn(line, " ");
    if (at == 0)
        return indent;
    while (at + 1 < len && !(line[at] == ' ' && line[at + 1] == ' '))
        at++;
    at += (int)strspn(line + at, " ");
    return at < len ? at : indent;
}

/* Columns of the word at the beginning of the text. */
static int word_of(const char *text)
{
    return (int)strcspn(text, " \n");
}

int wrap_text(struct buf *to, const char *text, int column, int indent, int width)
{
    int hang = hang_of(text, indent);
    int r = 0;
    while (r == 0 && *text) {
        int word = word_of(text);
        char after = text[word];
        r = buf_append(to, text, (size_t)word);
        text += word + (after != '\0');
        column += word + 1;
        if (after == '\n')
            hang = hang_of(text, indent);
        if (after == ' ' && column + word_of(text) <= width) {
            r = r == 0 ? buf_append(to, " ", 1) : r;
        } else if (after) {
            bool is_empty = after == '\n' && (*text == '\n' || !*text);
            column = is_empty ? 0 : after == '\n' ? indent : hang;
            r = r == 0 ? buf_printf(to, "\n%*s", column, "") : r;
        }
    }
    return r == 0 ? buf_append(to, "\n", 1) : r;
}
