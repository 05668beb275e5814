/* SPDX-License-Identifier: Apache-2.0 */

/* See output.h. */

#include "cli/output.h"

#include "base/str.h"
#include "base/utf8.h"
#include "cli/color.h"
#include "json/body.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool errors_as_json;

void output_json(json_t *value, size_t flags)
{
    (void)json_dumpf(value, stdout, JSON_INDENT(2) | flags);
    (void)putchar('\n');
    json_decref(value);
}

int output_fail(const char *command, int error)
{
    if (error == EPIPE)
        return 128 + SIGPIPE;
    (void)fprintf(stderr, "%s: cannot write the output: %s\n", command, strerror(error));
    return err_table[ERR_NO_SPACE].exit_status;
}

int output_end(const char *command, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    /* An earlier write may have failed without an errno that we know. Another write shows the
     * reason. */
    return output_fail(command, write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO);
}

void output_errors_as_json(void)
{
    errors_as_json = true;
}

void output_error_line(const char *command, const struct err *err)
{
    /* Many messages begin with the field, and messages of options name the option. */
    bool has_field = err->field[0] && !str_has_prefix(err->field, "--") &&
                     !str_has_prefix(err->message, err->field);
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s%s:%s %s%s%s\n", color_on(stderr, COLOR_BAD), command,
        color_off(stderr), has_field ? err->field : "", has_field ? ": " : "", err->message);
}

int output_error(const char *command, const struct err *err)
{
    output_error_line(command, err);
    if (errors_as_json)
        output_json(json_pack("{s:o}", "error", json_error(err)), 0);
    return err_table[err->code].exit_status;
}

void output_clean(const char *text, size_t width)
{
    output_clean_to(stdout, text, width);
}

void output_clean_to(FILE *to, const char *text, size_t width)
{
    size_t len = strcspn(text, "\n");
    for (size_t i = 0; i < len && width--;) {
        uint32_t code;
        size_t n = utf8_next(text + i, len - i, &code);
        if (code == UTF8_INVALID || code < 0x80)
            (void)fputc(code < 0x20 || code >= 0x7f ? '?' : text[i], to);
        else if (utf8_is_hidden(code))
            (void)fprintf(to, "<U+%04X>", (unsigned)code);
        else
            (void)fwrite(text + i, 1, n, to);
        i += n;
    }
}
