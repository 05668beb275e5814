/* SPDX-License-Identifier: Apache-2.0 */

/* For tests/approval: reads texts, each ended by a NUL, and prints for each a line of JSON with
 * what the reader of shell texts finds in it. An argument is the directory of the shell. Runs
 * shfmt without a box. */

#include "approval/shell.h"
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int parse(void *context, const char *text, size_t len, json_t **ret)
{
    int in[2], out[2], status = 0;
    FILE *spool = tmpfile();
    cleanup_buf struct buf tree;
    buf_init(&tree, SHELL_TREE_MAX);
    if (!spool || pipe(in) < 0 || pipe(out) < 0)
        return -EIO;
    (void)fwrite(text, 1, len, spool);
    (void)fflush(spool);
    (void)lseek(fileno(spool), 0, SEEK_SET);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(fileno(spool), 0);
        (void)dup2(out[1], 1);
        (void)close(2);
        (void)execlp("shfmt", "shfmt", "-ln", "bash", "--to-json", (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(in[1]);
    (void)close(out[1]);
    while (buf_read_fd(&tree, out[0], 65536) > 0)
        ;
    (void)close(out[0]);
    (void)fclose(spool);
    (void)waitpid(child, &status, 0);
    *ret = status == 0 ? json_loadb(tree.data ? tree.data : "", tree.len, 0, NULL) : NULL;
    (void)context;
    return *ret ? 0 : -EBADMSG;
}

static void print(const char *text, const char *directory)
{
    struct shell_forms forms;
    int r = shell_read(text, strlen(text), directory, parse, NULL, &forms);
    json_t *list = json_array();
    json_t *silent = json_array(); /* asked in a marked shell only */
    for (size_t i = 0; r == 0 && i < forms.count; i++) {
        const struct shell_command *c = &forms.items[i];
        bool is_silent = c->assigning == SHELL_ASSIGNS_ONLY && !forms.marks;
        (void)json_array_append_new(is_silent ? silent : list,
            json_pack("{s:O, s:O, s:O, s:O, s:s, s:s?, s:b}", "argv", c->argv, "grant",
                c->grant, "redirections", c->redirections, "files", c->files, "cwd", c->cwd,
                "danger", c->danger, "once", c->is_once));
    }
    json_t *answer =
        json_pack("{s:b, s:o, s:o, s:b, s:b}", "parsed", r == 0, "commands", list, "silent",
            silent, "reads_code", r == 0 && forms.reads_code, "marks", r == 0 && forms.marks);
    char *line = json_dumps(answer, JSON_COMPACT);
    (void)puts(line ? line : "null");
    free(line);
    json_decref(answer);
    if (r == 0)
        shell_forms_done(&forms);
}

int main(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    while (getdelim(&text, &size, '\0', stdin) > 0)
        print(text, argc > 1 ? argv[1] : "");
    free(text);
    return 0;
}
