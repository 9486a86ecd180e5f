# Run at build time:
#
#   cmake -DSTYLE=page.css "-DSCRIPTS=a.js;b.js" -DOUTPUT=page_assets.cpp -P EmbedPage.cmake
#
# Writes the page's files as C++ strings (penstock/report/page/page_assets.h). The scripts become
# one, in the order given, in strict mode and a scope of its own.
function(append_function output name content)
  set(body "std::string_view ${name}() {\n  static constexpr char kText[] =\n")
  string(LENGTH "${content}" length)
  set(at 0)
  # Compilers limit the length of one literal, not of several in a row.
  while(at LESS length)
    string(SUBSTRING "${content}" ${at} 8000 piece)
    string(APPEND body "R\"penstock(${piece})penstock\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  string(APPEND body ";\n  return {kText, sizeof kText - 1};\n}\n")
  set(${output} "${${output}}${body}" PARENT_SCOPE)
endfunction()

file(READ "${STYLE}" style)
set(script "\"use strict\";\n(() => {\n")
foreach(path IN LISTS SCRIPTS)
  file(READ "${path}" part)
  string(APPEND script "${part}\n")
endforeach()
string(APPEND script "})();\n")
string(SHA256 hash "${script}")

set(code "#include \"penstock/report/page/page_assets.h\"\n\nnamespace penstock::report {\n\n")
append_function(code page_style "${style}")
append_function(code page_script "${script}")
append_function(code page_script_sha256 "${hash}")
string(APPEND code "\n}  // namespace penstock::report\n")
file(WRITE "${OUTPUT}" "${code}")
