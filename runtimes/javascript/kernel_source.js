// SPDX-License-Identifier: Apache-2.0
'use strict';
// Rewrites code of a cell that V8's REPL mode does not accept: static imports, and redeclaration of a name as another
// kind. (REPL mode does accept top-level await and `let x` after `let x`.) Words are replaced in place, so that line
// numbers stay.

const WORD = /[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy;
const NUMBER = /\.?\d[\w.]*/y;
const BEFORE_REGEX = new Set(['return', 'typeof', 'instanceof', 'in', 'of', 'new', 'delete', 'void', 'throw', 'case',
  'do', 'else', 'await', 'yield']);

// Calls visit(word, start, end, previous, depth, newline) for each word of the code outside strings, comments,
// regular expressions and template text. `previous` is the token before it ('' at the start).
function scan(code, visit) {
  let at = 0;
  let previous = '';
  let newline = false;
  let depth = 0;
  const templates = []; // depths at which a ${ was opened
  const token = (text) => { previous = text; newline = false; };

  function template() { // from after ` or }, to the end of the template or into ${
    while (at < code.length) {
      const c = code[at++];
      if (c === '\\') at++;
      else if (c === '`') { token('`'); return; }
      else if (c === '$' && code[at] === '{') { at++; templates.push(depth++); token('{'); return; }
    }
  }

  while (at < code.length) {
    const c = code[at];
    if (c === '\n') { newline = true; at++; continue; }
    if (c === ' ' || c === '\t' || c === '\r') { at++; continue; }
    if (c === '/' && code[at + 1] === '/') {
      while (at < code.length && code[at] !== '\n') at++;
      continue;
    }
    if (c === '/' && code[at + 1] === '*') {
      const end = code.indexOf('*/', at + 2);
      at = end < 0 ? code.length : end + 2;
      continue;
    }
    if (c === '"' || c === "'") {
      at++;
      while (at < code.length && code[at] !== c && code[at] !== '\n') at += code[at] === '\\' ? 2 : 1;
      at++;
      token('"');
      continue;
    }
    if (c === '`') { at++; template(); continue; }
    WORD.lastIndex = at;
    const word = WORD.exec(code);
    if (word) {
      visit(word[0], at, at + word[0].length, previous, depth, newline);
      at += word[0].length;
      token(word[0]);
      continue;
    }
    NUMBER.lastIndex = at;
    const number = NUMBER.exec(code);
    if (number) { at += number[0].length; token('0'); continue; }
    if (c === '/' && isRegex(previous)) {
      let inClass = false;
      at++;
      while (at < code.length && code[at] !== '\n' && (inClass || code[at] !== '/')) {
        if (code[at] === '\\') at++;
        else if (code[at] === '[') inClass = true;
        else if (code[at] === ']') inClass = false;
        at++;
      }
      at++;
      token('"');
      continue;
    }
    at++;
    if (c === '{' || c === '(' || c === '[') depth++;
    if (c === '}' || c === ')' || c === ']') {
      depth--;
      if (c === '}' && templates.length && templates[templates.length - 1] === depth) {
        templates.pop();
        template();
        continue;
      }
    }
    token(c);
  }
}

function isRegex(previous) {
  if (previous === '' || BEFORE_REGEX.has(previous)) return true;
  return !/[\p{ID_Continue}$)\]}"`0]$/u.test(previous);
}

function isStatementStart(previous, newline) {
  if (previous === '' || previous === ';' || previous === '}') return true;
  return newline && /[\p{ID_Continue}$)\]"`0]$/u.test(previous);
}

function replace(code, edits) {
  let out = '';
  let at = 0;
  for (const [start, end, text] of edits) {
    out += code.slice(at, start) + text;
    at = end;
  }
  return out + code.slice(at);
}

// import x, {a as b} from 'm'  ->  let {default: x, a: b} = await IMPORT('m')
const STATIC = new RegExp([
  /import\s*(?:([\w$]+)\s*,?\s*)?/, /(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?/, /from\s*("[^"\n]*"|'[^'\n]*')/,
  /(?:\s*(?:with|assert)\s*(\{[^}]*\}))?/].map((part) => part.source).join(''), 'y');
const BARE = /import\s*("[^"\n]*"|'[^'\n]*')/y;

function importStatement(code, start, name) {
  const lines = (text) => '\n'.repeat(text.split('\n').length - 1);
  BARE.lastIndex = STATIC.lastIndex = start;
  let found = BARE.exec(code);
  if (found) return [start, BARE.lastIndex, `await ${name}(${found[1]})${lines(found[0])}`];
  found = STATIC.exec(code);
  if (!found) return null;
  const [whole, main, all, some, from, options] = found;
  const parts = [];
  if (main) parts.push(`default: ${main}`);
  for (const one of (some || '').split(',')) {
    const pair = one.trim().split(/\s+as\s+/);
    if (pair[0]) parts.push(pair[1] ? `${pair[0]}: ${pair[1]}` : pair[0]);
  }
  const load = `await ${name}(${from}${options ? `, {with: ${options}}` : ''})`;
  const text = all
    ? `let ${all} = ${load}${main ? `, {default: ${main}} = ${all}` : ''}`
    : `let {${parts.join(', ')}} = ${load}`;
  return [start, STATIC.lastIndex, text + lines(whole)];
}

// `kind` is what top-level declarations become: 'let' (from const), 'var' (from let, const, class), or 'all let' (from
// const and var).
function rewrite(code, importName, kind = 'let') {
  const edits = [];
  let behind = 0;
  scan(code, (word, start, end, previous, depth, newline) => {
    if (start < behind || previous === '.') return;
    if (word === 'import') {
      const next = /\s*(.)/y;
      next.lastIndex = end;
      const after = (next.exec(code) || [])[1];
      if (after === '.' || after === ':') return; // import.meta, or a key of an object
      const edit = after === '(' ? [start, end, importName] : depth === 0 && importStatement(code, start, importName);
      if (edit) {
        edits.push(edit);
        behind = edit[1];
      }
    } else if (depth === 0 && word === 'const') {
      edits.push([start, end, kind === 'var' ? 'var' : 'let']);
    } else if (depth === 0 && kind === 'var' && word === 'let' && isStatementStart(previous, newline)) {
      edits.push([start, end, 'var']);
    } else if (depth === 0 && kind === 'var' && word === 'class' && isStatementStart(previous, newline)) {
      const name = /\s+([\w$]+)/y;
      name.lastIndex = end;
      const found = name.exec(code);
      if (found) edits.push([start, end, `var ${found[1]} = class`]);
    } else if (depth === 0 && kind === 'all let' && word === 'var') {
      edits.push([start, end, 'let']);
    }
  });
  return edits.length ? replace(code, edits) : code;
}

module.exports = { rewrite };
