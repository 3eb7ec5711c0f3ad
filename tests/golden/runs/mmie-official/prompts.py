
SA_SYSTEM_PROMPT = """Story. Reply with ### Score
and a number."""
PBL_SYSTEM_PROMPT = """Method."""
MSR_PROMPT = """Problem."""


def get_prompt(data_id):
    if "SA" in data_id:
        return SA_SYSTEM_PROMPT + "# Q\n{question}\n# A\n{answer}\n# F\n"
    elif "PBL" in data_id:
        return PBL_SYSTEM_PROMPT + "# Q\n{question}\n# A\n{answer}\n# F\n"
    elif "MSR" in data_id:
        return MSR_PROMPT + "# Q\n{question}\n# A\n{answer}\n# T\n{gt_answer}\n# F\n"
    else:
        print("?")
