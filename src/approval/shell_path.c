/* SPDX-License-Identifier: Apache-2.0 */

/* Paths: what a word may name, and whether that is a device, a secret, or a file that decides
 * about rights. The home directory of anybody is `~`. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    PATTERN_MAX = 64, /* of a path in a table */
    UPS_MAX = 64,     /* `..` in a path; with more it may be anything */
};

/* Files that decide who has which rights, or what runs later. */
static const char sensitive_writes[] =
    "/etc /etc/** /private/etc/** /boot/** /usr/** /bin/** /sbin/** /lib/** /lib64/** "
    "/sys/** /proc/** /var/spool/** "
    "/root/** /dev/tcp/** /dev/udp/** ~/.* ~/.*/** **/.ssh/** .ssh/** **/.git/hooks/** "
    ".git/** **/.git/config "
    "**/.env **/.env.* .env .env.* **/config.yaml config.yaml **/.netrc .netrc **/.pgpass "
    "**/.npmrc .npmrc **/.pypirc "
    "**/.bashrc **/.bash_profile **/.bash_login **/.profile **/.zshrc **/.zshenv "
    "**/.zprofile **/.kshrc .bashrc "
    ".profile **/authorized_keys authorized_keys **/sudoers **/sudoers.d/** **/crontab "
    "**/cron.*/**";

/* Those of them that count when the directory is known and the word does not name it. Whole
 * projects are below /usr and /root, too. */
static const char placed_writes[] =
    "/etc/** /private/etc/** /boot/** /dev/** /sys/** /proc/** /var/spool/** ~/.* ~/.config/** "
    "**/.ssh/** **/.git/hooks/** **/.git/config";
static const char secrets[] =
    "**/etc/shadow **/etc/gshadow **/etc/shadow- **/etc/gshadow- **/etc/sudoers "
    "**/etc/sudoers.d/** "
    "/etc/ssh/ssh_host_*_key /proc/*/root/** /proc/*/cwd/** /proc/*/task/*/environ "
    "~/.my.cnf **/.my.cnf .my.cnf ~/.vault-token **/.vault-token .vault-token ~/.hermes/** "
    "**/.hermes/** .hermes/** ~/.ssh/** **/.ssh/** .ssh/** "
    "**/.env .env **/.env.* .env.* "
    "~/.aws/** **/.aws/** ~/.netrc **/.netrc .netrc ~/.pgpass **/.pgpass **/.npmrc "
    "**/.pypirc ~/.config/** ~/.kube/** "
    "**/.kube/** ~/.docker/** **/.docker/** ~/.gnupg/** **/.gnupg/** **/id_rsa* "
    "**/id_ed25519* **/id_ecdsa* **/id_dsa* **/*.pem *.pem "
    "**/*.key *.key **/credentials **/credentials.json **/.git-credentials .git-credentials "
    "/proc/*/environ /proc/*/mem "
    "/dev/mem /dev/kmem /dev/port /proc/kcore /proc/*/fd/* ~/.*history **/.*history "
    /* disks have all files, and so have backups of the system's */
    SHELL_DEVICES " **/var/backups/*shadow* **/etc/security/opasswd **/etc/krb5.keytab "
    "**/etc/wireguard/** **/etc/kubernetes/** **/etc/NetworkManager/system-connections/** "
    "**/run/secrets/** /var/lib/kubelet/** **/etc/mysql/debian.cnf "
    /* where programs keep what logs them in */
    "**/credentials.toml **/credentials.tfrc.json **/*.keytab **/*.kdbx **/*.p12 **/*.pfx "
    "**/*.jks **/.htpasswd ~/.local/share/keyrings/** ~/.mozilla/** ~/.thunderbird/** "
    "~/.password-store/** ~/.azure/** ~/.oci/** ~/.m2/settings*.xml ~/.composer/** "
    "~/.subversion/auth/** ~/.pki/** ~/.yarnrc* ~/.claude/** ~/.claude.json ~/.codex/** "
    "~/.gemini/**";

/* A path without doubled slashes, `.` and `..`, and without a slash at its end. The
 * home directory is not known here, so the directory above ~ is taken to be /home. */
char *shell_normal_path(const char *path)
{
    char *out = xcalloc(1, strlen(path) + sizeof("/home"));
    size_t len = 0;
    bool is_absolute = path[0] == '/';
    while (*path) {
        size_t part = strcspn(path, "/");
        bool is_up = part == 2 && strncmp(path, "..", 2) == 0;
        if (is_up && out[0] == '~' && !strchr(out, '/')) {
            len = strlen("/home");
            memcpy(out, "/home", len + 1);
            is_absolute = true;
        } else if (is_up && len && !str_has_suffix(out, "..")) {
            while (len && out[len - 1] != '/')
                len--;
            len -= len > 0;
        } else if (part && !(part == 1 && *path == '.') && !(is_up && is_absolute)) {
            if (len || is_absolute)
                out[len++] = '/';
            memcpy(out + len, path, part);
            len += part;
        }
        out[len] = '\0';
        path += part + (path[part] == '/');
    }
    if (!len)
        out[0] = is_absolute ? '/' : '.';
    return out;
}

/* --- what a word may name */

/* /home/me, /root and ~me are `~`. */
static char *fold_home(const char *path)
{
    size_t len = str_has_prefix(path, "/home/")    ? 6
                 : str_has_prefix(path, "/Users/") ? 7
                 : str_has_prefix(path, "/root")   ? 5
                                                   : 1;
    bool is_root = len == 5 && (!path[5] || path[5] == '/');
    bool is_name = (len > 5 && path[len]) || (path[0] == '~' && path[1] && path[1] != '/');
    size_t name = is_name ? strcspn(path + len, "/") : 0;
    return is_root || is_name ? xasprintf("~%s", path + len + name) : NULL;
}

static void add_path(json_t *paths, const char *text)
{
    cleanup_free char *path = shell_normal_path(text);
    cleanup_free char *folded = fold_home(path);
    (void)json_array_append_new(paths, json_string_nocheck(path));
    if (folded)
        (void)json_array_append_new(paths, json_string_nocheck(folded));
}

static void add_paths(json_t *paths, const char *text, const char *directory, unsigned reach)
{
    add_path(paths, text);
    if (reach & SHELL_PLACED && directory && directory[0] && !strchr("/~", text[0])) {
        cleanup_free char *whole = xasprintf("%s/%s", directory, text);
        add_path(paths, whole);
    }
    /* Behind a `..` it goes on in a directory that only the place knows. */
    for (const char *at = text; reach & SHELL_BEYOND && (at = strstr(at, "..")); at += 2) {
        if ((at == text || at[-1] == '/') && at[2] == '/' && strncmp(at + 3, "../", 3) != 0)
            add_path(paths, at + 2);
    }
}

/* of=/dev/sda, --output=/etc/x, HEAD:.env */
static json_t *paths_of(const struct shell_word *word, unsigned reach)
{
    const char *value = strchr(word->shape, '=');
    const char *colon = strrchr(word->shape, ':');
    json_t *paths = json_array();
    add_paths(paths, word->shape, word->directory, reach);
    if (value)
        add_paths(paths, value + 1, word->directory, reach);
    if (colon && colon[1] && reach & SHELL_BEYOND)
        add_paths(paths, colon + 1, word->directory, reach);
    return paths;
}

/* --- patterns of the shell */

/* Whether a pattern of the shell may name a path of one of the table. [..] is any character,
 * {..} any text; no * or ? begins a name with a dot. */
static bool patterns_meet(const char *word, const char *pattern, size_t pattern_len)
{
    bool row[PATTERN_MAX + 1] = {true}; /* which beginnings of `pattern` meet the word so far */
    for (size_t k = 0; k < pattern_len && pattern[k] == '*'; k++)
        row[k + 1] = true;
    for (size_t i = 0; word[i]; i++) {
        bool next[PATTERN_MAX + 1] = {false};
        bool is_any = strchr("*{", word[i]) != NULL;
        bool is_one = strchr("?[", word[i]) != NULL;
        bool is_first = i == 0 || word[i - 1] == '/';
        for (size_t k = 0; k <= pattern_len; k++) {
            next[k] = next[k] || (is_any && row[k]);
            bool is_here = is_any ? next[k] : row[k];
            if (k == pattern_len || !is_here)
                continue;
            bool is_star = pattern[k] == '*';
            bool is_dot = pattern[k] == '.' && is_first && (k == 0 || pattern[k - 1] == '/');
            if (is_star)
                next[k] = next[k + 1] = true;
            else if (pattern[k] == word[i] || (is_one && !is_dot) ||
                     (is_any && (word[i] == '{' || (!is_dot && pattern[k] != '/'))))
                next[k + 1] = true;
        }
        for (size_t k = 0; k < pattern_len; k++)
            next[k + 1] = next[k + 1] || (next[k] && pattern[k] == '*');
        const char *close = word[i] == '[' || word[i] == '{'
                                ? strrchr(word + i, word[i] == '[' ? ']' : '}')
                                : NULL;
        i = close ? (size_t)(close - word) : i;
        memcpy(row, next, sizeof(row));
    }
    return row[pattern_len];
}

/* The last part of the pattern is one of the words of {a,b}. */
static bool is_spelled(const char *word, const char *pattern, size_t len)
{
    size_t from = len;
    while (from && pattern[from - 1] != '/')
        from--;
    for (const char *at = word; (at = strpbrk(at, "{,/")); at++) {
        if (strncmp(at + 1, pattern + from, len - from) == 0 &&
            strchr(",}", at[1 + len - from]))
            return true;
    }
    return false;
}

/* Whether a pattern may name one of the list. A sure one begins at the root, and what stands in
 * braces is written out. */
static bool pattern_is(const char *list, const char *path, bool is_sure)
{
    bool found = false;
    while (*list && !found) {
        size_t len = strcspn(list, " ");
        bool is_open = !is_sure || (path[0] == '/' && !memchr(list, '\\', len) &&
                                       (!strchr(path, '{') || is_spelled(path, list, len)));
        size_t skip = strncmp(list, "**/", 3) == 0 ? 3 : 0; /* no directory, too */
        found = is_open && (len > PATTERN_MAX || patterns_meet(path, list, len) ||
                               patterns_meet(path, list + skip, len - skip));
        list += len + (list[len] == ' ');
    }
    return found;
}

bool shell_path_is(const char *list, const struct shell_word *word, unsigned reach)
{
    json_t *paths = paths_of(word, reach);
    bool is_pattern = !word->is_literal && reach & (SHELL_PATTERN | SHELL_SURE_PATTERN);
    bool found = false;
    for (size_t i = 0; i < json_array_size(paths) && !found; i++) {
        const char *path = json_string_value(json_array_get(paths, i));
        found = path && (shell_name_is(path, list) ||
                            (is_pattern && pattern_is(list, path, reach & SHELL_SURE_PATTERN)));
    }
    json_decref(paths);
    return found;
}

/* --- what is there */

static bool is_maze(const char *text)
{
    size_t ups = 0;
    while ((text = strstr(text, ".."))) {
        text += 2;
        ups++;
    }
    return ups > UPS_MAX;
}

bool shell_is_secret(const struct shell_word *word)
{
    return is_maze(word->shape) || shell_path_is(secrets, word, SHELL_PLACED | SHELL_BEYOND);
}

static size_t count_of(const char *text, char c)
{
    size_t count = 0;
    while ((text = strchr(text, c)))
        text++, count++;
    return count;
}

/* A pattern that patterns_meet() reads as less than it is: quotes decide which ] closes, and a
 * `..` stands in the middle of it. */
static bool is_odd_pattern(const struct shell_word *word)
{
    const char *from = strpbrk(word->shape, "*?[{");
    return !word->is_literal && from &&
           (count_of(from, '[') > 1 || count_of(from, ']') > 1 || strstr(from, ".."));
}

bool shell_may_be_secret(const struct shell_word *word)
{
    static const char roots[] = "/ ~ /etc /home /Users /proc";
    struct shell_word inside = *word;
    cleanup_free char *shape = xasprintf("%s/x", word->shape);
    cleanup_free char *path = shell_normal_path(word->shape);
    inside.shape = shape;
    return is_maze(word->shape) || is_odd_pattern(word) ||
           shell_path_is(roots, word, str_eq(path, ".") ? 0 : SHELL_PLACED) ||
           shell_path_is(secrets, word, SHELL_PLACED | SHELL_BEYOND | SHELL_PATTERN) ||
           shell_path_is(secrets, &inside, SHELL_PLACED | SHELL_BEYOND);
}

const char *shell_danger_of_write(const struct shell_word *target)
{
    const unsigned reach = shell_is_unknown(target) ? 0 : SHELL_SURE_PATTERN;
    if (shell_path_is(SHELL_DEVICES, target, SHELL_PLACED | reach))
        return "never.write_device";
    return shell_path_is(sensitive_writes, target, 0) ||
                   shell_path_is(placed_writes, target, SHELL_PLACED) ||
                   shell_is_unknown(target)
               ? "write.sensitive"
               : NULL;
}

bool shell_is_steady_path(const struct shell_word *word)
{
    return !word->is_open && !shell_is_unknown(word) && !strchr("-+", word->shape[0]) &&
           (word->is_literal || !strpbrk(word->shape, "*?[{"));
}

const char *shell_directory_after(struct shell_walk *w, const struct shell_word *target)
{
    cleanup_free char *path = NULL;
    if (!target || strchr("/~", target->shape[0]))
        path = shell_normal_path(target ? target->shape : "~");
    else if (w->directory) {
        cleanup_free char *whole = xasprintf("%s/%s", w->directory, target->shape);
        path = shell_normal_path(w->directory[0] ? whole : target->shape);
    }
    return path && strlen(path) <= SHELL_PLACE_MAX ? shell_keep(w, path) : NULL;
}

const char *shell_keep(struct shell_walk *w, const char *text)
{
    json_t *kept = text ? json_string_nocheck(text) : NULL;
    (void)json_array_append(w->kept, kept);
    json_decref(kept);
    return json_string_value(kept);
}
