# Run at build time:
#
#   cmake -DHEADER=penstock/report/page/page_assets.h -DNAMESPACE=penstock::report
#         ["-DSTYLES=page.css" "-DSCRIPTS=a.js;b.js"] ["-DTEXTS=page_icon=icon.svg"]
#         [-DWITH_HASH=ON] -DOUTPUT=page_assets.cpp -P EmbedPage.cmake
#
# Writes a page's files as C++ strings: page_style(), page_script(), a function for each of TEXTS
# and, WITH_HASH, page_script_sha256(). Styles and scripts become one each, in the order given; the
# script is in strict mode and a scope of its own.
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

set(style)
foreach(path IN LISTS STYLES)
  file(READ "${path}" part)
  string(APPEND style "${part}")
endforeach()
set(script "\"use strict\";\n(() => {\n")
foreach(path IN LISTS SCRIPTS)
  file(READ "${path}" part)
  string(APPEND script "${part}\n")
endforeach()
string(APPEND script "})();\n")

set(code "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
if(STYLES)
  append_function(code page_style "${style}")
  append_function(code page_script "${script}")
endif()
if(WITH_HASH)
  string(SHA256 hash "${script}")
  append_function(code page_script_sha256 "${hash}")
endif()
foreach(text IN LISTS TEXTS)
  string(REGEX MATCH "^([a-z_]+)=(.*)$" _ "${text}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${CMAKE_MATCH_2}" content)
  append_function(code ${name} "${content}")
endforeach()
string(APPEND code "\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${code}")
